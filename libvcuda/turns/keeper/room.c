/* When a container finds the GPU full, asks its neighbours for what their pools keep.  */

#include "keeper/room.h"

/* The shortest time between two requests to the pools of a GPU, and between two for one container.
 */
#define EACH_GPU_NS (1000 * MS)
#define EACH_TENANT_NS (5000 * MS)

static void
ask_others (const struct gpu *gpu, const struct tenant *asker)
{
  for (int i = 0; i < gpu->count; i++)
    if (gpu->tenants[i] != asker && !gpu->tenants[i]->suspended)
      __atomic_fetch_add (&gpu->tenants[i]->limits->trim_asked, 1, __ATOMIC_RELAXED);
}

/* Whether it has asked since the last call.  */
static bool
asks (struct tenant *tenant)
{
  uint32_t before = tenant->room_asked;
  bool known = tenant->room_known;
  tenant->room_asked = tenant->signals.room_asked;
  tenant->room_known = true;
  return known && tenant->room_asked != before;
}

static bool
is_due (uint64_t last_ns, uint64_t now, uint64_t every_ns)
{
  return !last_ns || now - last_ns >= every_ns;
}

void
room_pass_on (struct gpu *gpu, uint64_t now)
{
  for (int i = 0; i < gpu->count; i++)
    {
      struct tenant *tenant = gpu->tenants[i];
      if (!tenant->readable || !asks (tenant) || !is_due (tenant->room_ns, now, EACH_TENANT_NS)
          || !is_due (gpu->trimmed_ns, now, EACH_GPU_NS))
        continue;
      tenant->room_ns = gpu->trimmed_ns = now;
      ask_others (gpu, tenant);
    }
}
