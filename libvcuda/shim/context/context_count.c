/* A context takes device memory that no call names. The driver does not report it beforehand, so
   the host states it (limits: context_bytes), and each context is charged that much.  */

#include "context/context_count.h"

#include <pthread.h>
#include <string.h>

#include "charge/alloc_map.h"
#include "charge/charge.h"
#include "memory/reserve.h"
#include "pages/device.h"
#include "pages/slot.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint32_t live[VCUDA_MAX_GPUS];

static uint8_t
shown (int gpu)
{
  uint32_t count = __atomic_load_n (&live[gpu], __ATOMIC_RELAXED);
  return count < UINT8_MAX ? (uint8_t) count : UINT8_MAX;
}

static void
count (int gpu, int change)
{
  if (gpu < 0)
    return;
  pthread_mutex_lock (&mutex);
  __atomic_fetch_add (&live[gpu], (uint32_t) change, __ATOMIC_RELAXED);
  struct vcuda_usage_slot *slot = vcuda_slot ();
  if (slot)
    __atomic_store_n (&slot->contexts[gpu], shown (gpu), __ATOMIC_RELAXED);
  pthread_mutex_unlock (&mutex);
}

CUresult
vcuda_context_begin (struct vcuda_charge *charge, CUdevice device)
{
  /* No context: this entry ends by its own key, not with what the context held.  */
  *charge = (struct vcuda_charge){ .gpu = vcuda_gpu_of_device (device) };
  if (charge->gpu >= 0)
    charge->bytes
        = __atomic_load_n (&vcuda_pages.limits->gpu[charge->gpu].context_bytes, __ATOMIC_RELAXED);
  return charge->bytes ? vcuda_reserve (charge->gpu, charge->bytes) : CUDA_SUCCESS;
}

CUresult
vcuda_context_begun (const struct vcuda_charge *charge, CUresult rc, uint64_t key)
{
  vcuda_settle (charge, rc, key, VCUDA_OF_CONTEXT);
  if (rc == CUDA_SUCCESS)
    count (charge->gpu, 1);
  return rc;
}

void
vcuda_context_ended (const struct vcuda_allocation *entry, CUresult rc)
{
  vcuda_settle_free (entry, rc);
  if (rc == CUDA_SUCCESS)
    count (entry->gpu, -1);
}

void
vcuda_context_counts (uint8_t *counts)
{
  /* Called while a slot is taken, perhaps by count: no lock.  */
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    __atomic_store_n (&counts[gpu], shown (gpu), __ATOMIC_RELAXED);
}

void
vcuda_contexts_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
  memset (live, 0, sizeof live);
}
