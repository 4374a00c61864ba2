/* CUDA arrays. The descriptor's size is reserved before the call, and after it what the driver
   reports above that; most drivers report a size only for arrays without memory of their own
   (sparse, or mapped later). Such arrays are not charged: cuMemCreate was, for the memory that is
   mapped into them.  */

#include "allocate/array_size.h"
#include "charge/alloc_map.h"
#include "memory/bindings.h"
#include "memory/settle.h"
#include "thread/own_calls.h"

#define HAS_NO_MEMORY (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

static uint64_t
size_of (const CUDA_ARRAY3D_DESCRIPTOR *wanted, unsigned int levels)
{
  /* The driver has an error for a missing or empty descriptor.  */
  bool takes_memory = wanted && wanted->Width && !(wanted->Flags & HAS_NO_MEMORY);
  return takes_memory ? vcuda_array_bytes (wanted, levels) : 0;
}

/* Charges what ARRAY takes above its descriptor, or destroys it again where that does not fit.
   KIND: which of the driver's two kinds of array it is.  */
static CUresult
settle_array (struct vcuda_charge *charge, CUresult rc, enum vcuda_kind kind, void *array)
{
  CUDA_ARRAY_MEMORY_REQUIREMENTS required = { 0 };
  CUdevice device;
  bool is_plain = kind == VCUDA_ARRAY;
  if (rc == CUDA_SUCCESS && charge->bytes && real.cuCtxGetDevice (&device) == CUDA_SUCCESS
      && (is_plain ? real.cuArrayGetMemoryRequirements (&required, array, device)
                   : real.cuMipmappedArrayGetMemoryRequirements (&required, array, device))
             == CUDA_SUCCESS
      && required.size > charge->bytes
      && vcuda_charge_more (charge, required.size - charge->bytes) != CUDA_SUCCESS)
    {
      struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
      if (is_plain)
        VCUDA_CALL_DRIVER (real.cuArrayDestroy (array));
      else
        VCUDA_CALL_DRIVER (real.cuMipmappedArrayDestroy (array));
      vcuda_own_calls_end (mode);
      rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
  return vcuda_settle (charge, rc, VCUDA_KEY (kind, array), VCUDA_OF_CONTEXT);
}

#define CREATE(bytes, call, kind)                                                                  \
  VCUDA_ALLOCATE_AS (bytes, call, call,                                                            \
                     settle_array (&charge, rc, kind, rc == CUDA_SUCCESS ? *array : NULL))

/* The descriptor of a 2D array, of 32 or 64 bits, as that of a 3D array.  */
#define FLAT(wanted)                                                                               \
  ((wanted) ? (CUDA_ARRAY3D_DESCRIPTOR){ .Width = (wanted)->Width,                                 \
                                         .Height = (wanted)->Height,                               \
                                         .Format = (wanted)->Format,                               \
                                         .NumChannels = (wanted)->NumChannels }                    \
            : (CUDA_ARRAY3D_DESCRIPTOR){ 0 })

CUresult
vcuda_cuArrayCreate (CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *wanted)
{
  CUDA_ARRAY3D_DESCRIPTOR flat = FLAT (wanted);
  CREATE (size_of (&flat, 1), real.cuArrayCreate (array, wanted), VCUDA_ARRAY);
}

CUresult
vcuda_cuArrayCreate_v2 (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted)
{
  CUDA_ARRAY3D_DESCRIPTOR flat = FLAT (wanted);
  CREATE (size_of (&flat, 1), real.cuArrayCreate_v2 (array, wanted), VCUDA_ARRAY);
}

CUresult
vcuda_cuArray3DCreate (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *wanted)
{
  CUDA_ARRAY3D_DESCRIPTOR wide = { 0 };
  if (wanted)
    wide = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = wanted->Width,
                                      .Height = wanted->Height,
                                      .Depth = wanted->Depth,
                                      .Format = wanted->Format,
                                      .NumChannels = wanted->NumChannels,
                                      .Flags = wanted->Flags };
  CREATE (size_of (&wide, 1), real.cuArray3DCreate (array, wanted), VCUDA_ARRAY);
}

CUresult
vcuda_cuArray3DCreate_v2 (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted)
{
  CREATE (size_of (wanted, 1), real.cuArray3DCreate_v2 (array, wanted), VCUDA_ARRAY);
}

CUresult
vcuda_cuMipmappedArrayCreate (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                              unsigned int levels)
{
  CREATE (size_of (wanted, levels), real.cuMipmappedArrayCreate (array, wanted, levels),
          VCUDA_MIPMAPPED_ARRAY);
}

CUresult
vcuda_cuArrayDestroy (CUarray array)
{
  const uint64_t key = VCUDA_KEY (VCUDA_ARRAY, array);
  VCUDA_RELEASE (key, VCUDA_WITH_BINDINGS (key, real.cuArrayDestroy (array)));
}

CUresult
vcuda_cuMipmappedArrayDestroy (CUmipmappedArray array)
{
  const uint64_t key = VCUDA_KEY (VCUDA_MIPMAPPED_ARRAY, array);
  VCUDA_RELEASE (key, VCUDA_WITH_BINDINGS (key, real.cuMipmappedArrayDestroy (array)));
}
