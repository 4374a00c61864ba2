/* softgpu time: how each GPU's time was spent, as a judge reads it: from the state itself, never by
   events.  */

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "create/files.h"
#include "create/request.h"
#include "engine/device_time.h"

/* A copy of what one process has of one GPU.  */
struct part
{
  unsigned gpu;
  bool ended;
  uint32_t pid;
  uint64_t pid_namespace;
  char command[17];
  uint64_t held_ns, thread_ns, submitted, finished;
};

struct times
{
  unsigned clock;
  unsigned entries;
  struct softgpu_gpu gpu[SOFTGPU_MAX_ENTRIES];
  unsigned count;
  struct part part[SOFTGPU_MAX_SLOTS * SOFTGPU_MAX_ENTRIES + SOFTGPU_ENDED];
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
copy_name (char *to, const char *from)
{
  memcpy (to, from, 16);
  to[16] = 0;
  for (; *to; to++)
    if (*to < ' ' || *to > '~' || *to == '"' || *to == '\\')
      *to = '?';
}

static void
collect_live (struct times *times, const struct softgpu_state *state)
{
  for (unsigned slot = 0; slot < state->slots_used; slot++)
    for (unsigned gpu = 0; gpu < state->entries; gpu++)
      {
        const struct softgpu_slot *process = &state->slot[slot];
        const struct softgpu_slot_gpu *queue = &process->gpu[gpu];
        if (process->kind != SOFTGPU_CUDA || (!queue->contexts && !queue->kernels_submitted))
          continue;
        struct part *part = &times->part[times->count++];
        *part = (struct part){ .gpu = gpu,
                               .pid = process->pid,
                               .pid_namespace = process->pid_namespace,
                               .held_ns = queue->held_ns,
                               .thread_ns = queue->thread_ns,
                               .submitted = queue->kernels_submitted,
                               .finished = queue->kernels_finished };
        copy_name (part->command, process->command);
      }
}

static void
collect_ended (struct times *times, const struct softgpu_state *state)
{
  uint64_t from = state->ended_count > SOFTGPU_ENDED ? state->ended_count - SOFTGPU_ENDED : 0;
  for (uint64_t at = from; at < state->ended_count; at++)
    {
      const struct softgpu_ended *ended = &state->ended[at % SOFTGPU_ENDED];
      struct part *part = &times->part[times->count++];
      *part = (struct part){ .gpu = ended->gpu,
                             .ended = true,
                             .pid = ended->pid,
                             .pid_namespace = ended->pid_namespace,
                             .held_ns = ended->held_ns,
                             .thread_ns = ended->thread_ns,
                             .submitted = ended->kernels_submitted,
                             .finished = ended->kernels_finished };
      copy_name (part->command, ended->command);
    }
}

static void
collect (struct times *times, const char *root, bool as_is)
{
  struct attachment tie;
  attach_to (&tie, root);
  softgpu_lock (&tie);
  struct softgpu_state *state = tie.state;
  for (unsigned gpu = 0; gpu < state->entries && !as_is; gpu++)
    if (*state->gpu[gpu].uuid)
      softgpu_advance (state, gpu, softgpu_now ());
  times->clock = state->clock;
  times->entries = state->entries;
  memcpy (times->gpu, state->gpu, sizeof times->gpu);
  collect_live (times, state);
  collect_ended (times, state);
  softgpu_unlock (&tie);
  softgpu_detach (&tie);
}

static void
print_parts (const struct times *times, unsigned gpu, bool ended)
{
  const char *comma = "";
  for (unsigned i = 0; i < times->count; i++)
    {
      const struct part *part = &times->part[i];
      if (part->gpu != gpu || part->ended != ended)
        continue;
      printf (
          "%s\n    {\"pid\": %u, \"pid_namespace\": %llu, \"command\": \"%s\", \"held_ns\": %llu,"
          " \"whole_ns\": %llu, \"kernels_submitted\": %llu, \"kernels_finished\": %llu}",
          comma, part->pid, (unsigned long long) part->pid_namespace, part->command,
          (unsigned long long) part->held_ns,
          (unsigned long long) (part->thread_ns / SOFTGPU_WHOLE),
          (unsigned long long) part->submitted, (unsigned long long) part->finished);
      comma = ",";
    }
}

static void
print_json (const struct times *times, const char *clock)
{
  const char *comma = "";
  printf ("{\"clock\": \"%s\", \"gpus\": [", clock);
  for (unsigned g = 0; g < times->entries; g++)
    {
      const struct softgpu_gpu *gpu = &times->gpu[g];
      if (!*gpu->uuid)
        continue;
      printf ("%s\n  {\"uuid\": \"%s\", \"begun_ns\": %llu, \"clock_ns\": %llu, \"busy_ns\": %llu, "
              "\"switch_ns\": %llu,"
              " \"idle_ns\": %llu,\n   \"processes\": [",
              comma, gpu->uuid, (unsigned long long) gpu->begun_ns,
              (unsigned long long) gpu->clock_ns, (unsigned long long) gpu->busy_ns,
              (unsigned long long) gpu->switch_ns, (unsigned long long) gpu->idle_ns);
      print_parts (times, g, false);
      printf ("],\n   \"ended\": [");
      print_parts (times, g, true);
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
print_text (const struct times *times, const char *clock)
{
  for (unsigned g = 0; g < times->entries; g++)
    {
      const struct softgpu_gpu *gpu = &times->gpu[g];
      if (!*gpu->uuid)
        continue;
      printf ("%s  %s clock at %.6f s: busy %.6f s, switching %.6f s, idle %.6f s\n", gpu->uuid,
              clock, seconds (gpu->clock_ns), seconds (gpu->busy_ns), seconds (gpu->switch_ns),
              seconds (gpu->idle_ns));
      for (unsigned i = 0; i < times->count; i++)
        {
          const struct part *part = &times->part[i];
          if (part->gpu == g)
            printf (
                "  pid %u of namespace %llu  %s%s  held %.6f s, finished %llu of %llu kernels\n",
                part->pid, (unsigned long long) part->pid_namespace, part->command,
                part->ended ? " (ended)" : "", seconds (part->held_ns),
                (unsigned long long) part->finished, (unsigned long long) part->submitted);
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
  static const char *const clocks[] = { "unkind", "kind", "mps" };
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
  const char *clock = clocks[times->clock % 3];
  (json ? print_json : print_text) (times, clock);
  free (times);
  return 0;
}
