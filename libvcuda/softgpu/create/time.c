/* softgpu time: how each GPU's time was spent, by the state itself, not by events.  */

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "create/files.h"
#include "create/request.h"
#include "engine/device_time.h"

struct times
{
  const char *clock;
  unsigned entries;
  struct softgpu_gpu gpu[SOFTGPU_MAX_ENTRIES];
  unsigned count, live; /* of use; the live processes come first */
  struct softgpu_use use[SOFTGPU_MAX_SLOTS * SOFTGPU_MAX_ENTRIES + SOFTGPU_ENDED];
};

void
attach_to (struct attachment *tie, const char *root)
{
  struct softgpu_paths paths;
  path_in (paths.state, "%s/softgpu.state", root);
  path_in (paths.devices, "%s/dev", root);
  switch (softgpu_attach_at (tie, &paths, SOFTGPU_NVML))
    {
    case ATTACHED:
      return;
    case ATTACH_NO_PERMISSION:
      fail (1, paths.state, "permission denied", "run it as a user who may write the file");
    case ATTACH_FULL:
      fail (1, root, "512 processes use it already", "end one of them");
    case ATTACH_NO_DRIVER:
      fail (1, root, "no driver root of this software GPU",
            "name the folder that create was given");
    }
}

/* A program names itself: its name must not end a line or a JSON string.  */
static void
add (struct times *times, struct softgpu_use use)
{
  for (char *at = use.command; at < use.command + sizeof use.command && *at; at++)
    if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
      *at = '?';
  times->use[times->count++] = use;
}

static void
add_all (struct times *times, const struct softgpu_state *state)
{
  for (unsigned slot = 0; slot < state->slots_used; slot++)
    for (unsigned gpu = 0; gpu < state->entries; gpu++)
      {
        const struct softgpu_slot_gpu *queue = &state->slot[slot].gpu[gpu];
        if (state->slot[slot].kind == SOFTGPU_CUDA && (queue->contexts || queue->kernels_submitted))
          add (times, softgpu_use_of (state, slot, gpu));
      }
  times->live = times->count;
  uint64_t from = state->ended_count > SOFTGPU_ENDED ? state->ended_count - SOFTGPU_ENDED : 0;
  for (uint64_t at = from; at < state->ended_count; at++)
    add (times, state->ended[at % SOFTGPU_ENDED]);
}

static void
collect (struct times *times, const char *root, bool as_is)
{
  struct attachment tie;
  attach_to (&tie, root);
  softgpu_lock (&tie);
  static const char *const clocks[] = { "unkind", "kind", "mps" };
  struct softgpu_state *state = tie.state;
  for (unsigned gpu = 0; gpu < state->entries && !as_is; gpu++)
    if (*state->gpu[gpu].uuid)
      softgpu_advance (state, gpu, softgpu_now ());
  times->clock = clocks[state->clock % 3];
  times->entries = state->entries;
  memcpy (times->gpu, state->gpu, sizeof times->gpu);
  add_all (times, state);
  softgpu_unlock (&tie);
  softgpu_detach (&tie);
}

static void
print_uses (const struct softgpu_use *use, const struct softgpu_use *end, unsigned gpu)
{
  const char *comma = "";
  for (; use < end; use++)
    {
      if (use->gpu != gpu)
        continue;
      printf ("%s\n    {\"pid\": %u, \"pid_namespace\": %lu, \"command\": \"%.16s\", \"held_ns\": "
              "%lu, \"whole_ns\": %lu, \"kernels_submitted\": %lu, \"kernels_finished\": %lu}",
              comma, use->pid, use->pid_namespace, use->command, use->held_ns,
              use->thread_ns / SOFTGPU_WHOLE, use->kernels_submitted, use->kernels_finished);
      comma = ",";
    }
}

static void
print_json (const struct times *times)
{
  const char *comma = "";
  printf ("{\"clock\": \"%s\", \"gpus\": [", times->clock);
  for (unsigned g = 0; g < times->entries; g++)
    {
      const struct softgpu_gpu *gpu = &times->gpu[g];
      if (!*gpu->uuid)
        continue;
      printf ("%s\n  {\"uuid\": \"%s\", \"begun_ns\": %lu, \"clock_ns\": %lu, \"busy_ns\": %lu, "
              "\"switch_ns\": %lu, \"idle_ns\": %lu,\n   \"processes\": [",
              comma, gpu->uuid, gpu->begun_ns, gpu->clock_ns, gpu->busy_ns, gpu->switch_ns,
              gpu->idle_ns);
      print_uses (times->use, times->use + times->live, g);
      printf ("],\n   \"ended\": [");
      print_uses (times->use + times->live, times->use + times->count, g);
      printf ("]}");
      comma = ",";
    }
  printf ("]}\n");
}

static double
seconds (uint64_t ns)
{
  return (double) ns / 1e9;
}

static void
print_text (const struct times *times)
{
  for (unsigned g = 0; g < times->entries; g++)
    {
      const struct softgpu_gpu *gpu = &times->gpu[g];
      if (!*gpu->uuid)
        continue;
      printf ("%s  %s clock at %.6f s: busy %.6f s, switching %.6f s, idle %.6f s\n", gpu->uuid,
              times->clock, seconds (gpu->clock_ns), seconds (gpu->busy_ns),
              seconds (gpu->switch_ns), seconds (gpu->idle_ns));
      for (unsigned i = 0; i < times->count; i++)
        {
          const struct softgpu_use *use = &times->use[i];
          if (use->gpu == g)
            printf (
                "  pid %u of namespace %lu  %.16s%s  held %.6f s, finished %lu of %lu kernels\n",
                use->pid, use->pid_namespace, use->command, i < times->live ? "" : " (ended)",
                seconds (use->held_ns), use->kernels_finished, use->kernels_submitted);
        }
    }
}

int
print_times (int argc, char **argv)
{
  static const struct option options[] = {
    { "json", no_argument, NULL, 'j' },
    { "as-is", no_argument, NULL, 'a' },
    { NULL, 0, NULL, 0 },
  };
  bool json = false, as_is = false;
  for (int option; (option = getopt_long (argc, argv, "", options, NULL)) != -1;)
    if (option == 'j')
      json = true;
    else if (option == 'a')
      as_is = true;
    else
      return 2;
  if (argc - optind != 1)
    fail (2, "time", "it takes one driver root", "name ROOT");
  struct times *times = calloc (1, sizeof *times);
  if (!times)
    fail (1, "time", "out of memory", "free some");
  collect (times, argv[optind], as_is);
  (json ? print_json : print_text) (times);
  free (times);
  return 0;
}
