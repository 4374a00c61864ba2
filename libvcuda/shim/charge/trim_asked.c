/* Follows trim_asked of the limits page.  */

#include "charge/trim_asked.h"

#include "pages/pages.h"

static uint8_t answered[VCUDA_MAX_GPUS];

bool
vcuda_trim_is_asked (int gpu)
{
  uint8_t asked = __atomic_load_n (&vcuda_pages.limits->gpu[gpu].trim_asked, __ATOMIC_RELAXED);
  return __atomic_exchange_n (&answered[gpu], asked, __ATOMIC_RELAXED) != asked;
}

void
vcuda_trims_follow (void)
{
  for (int gpu = 0; gpu < (int) vcuda_gpu_count (); gpu++)
    vcuda_trim_is_asked (gpu);
}
