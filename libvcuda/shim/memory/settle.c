/* Reserves for an allocation, and keeps or returns the charge after the driver's call.  */

#include "memory/settle.h"

#include "charge/charge.h"
#include "charge/pools_held.h"
#include "memory/reserve.h"
#include "memory/unsaved.h"
#include "pages/device.h"
#include "pages/pages.h"

CUresult
vcuda_charge_current (struct vcuda_charge *charge, uint64_t bytes)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  charge->bytes = bytes;
  CUresult rc = vcuda_gpu_current (&charge->gpu, &charge->context);
  return rc == CUDA_SUCCESS ? vcuda_reserve (charge->gpu, bytes) : rc;
}

CUresult
vcuda_charge_more (struct vcuda_charge *charge, uint64_t bytes)
{
  CUresult rc = bytes ? vcuda_reserve (charge->gpu, bytes) : CUDA_SUCCESS;
  if (rc == CUDA_SUCCESS)
    charge->bytes += bytes;
  return rc;
}

CUresult
vcuda_settle (const struct vcuda_charge *charge, CUresult rc, uint64_t key, enum vcuda_owner owner)
{
  struct vcuda_allocation allocation = { .key = key,
                                         .bytes = charge->bytes,
                                         .context = charge->context,
                                         .gpu = (int8_t) charge->gpu,
                                         .owner = (uint8_t) owner };
  if (rc != CUDA_SUCCESS)
    vcuda_give_back (charge->gpu, charge->bytes);
  else
    /* If host memory for the entry is missing, the charge stays until the process ends.  */
    vcuda_map_put (&allocation);
  if (rc == CUDA_SUCCESS && owner == VCUDA_MANAGED)
    vcuda_note_managed ();
  return rc;
}

void
vcuda_settle_free (const struct vcuda_allocation *allocation, CUresult rc)
{
  if (rc != CUDA_SUCCESS)
    vcuda_map_put (allocation);
  else if (allocation->owner == VCUDA_OF_POOL)
    vcuda_pool_freed (allocation->pool, allocation->bytes);
  else
    vcuda_give_back (allocation->gpu, allocation->bytes);
  if (allocation->owner == VCUDA_MANAGED)
    vcuda_note_managed ();
}
