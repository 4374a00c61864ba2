/* softgpu fail and softgpu heal: failures on order, for every process on the driver root.  */

#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "create/files.h"
#include "create/option_value.h"
#include "create/request.h"
#include "driver/tables.h"
#include "state/attach.h"

enum
{
  ILLEGAL_ADDRESS = 700, /* CUDA_ERROR_ILLEGAL_ADDRESS */
  XID_PAGE_FAULT = 31,
  XID_DOUBLE_BIT_ECC = 48,
  XID_OFF_THE_BUS = 79,
};

struct softgpu_state *
open_state (const char *root)
{
  char path[4096];
  path_in (path, "%s/softgpu.state", root);
  int fd = open (path, O_RDWR | O_CLOEXEC);
  struct softgpu_state *state = MAP_FAILED;
  if (fd >= 0)
    state = mmap (NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (state == MAP_FAILED || state->magic != SOFTGPU_MAGIC || state->version != SOFTGPU_VERSION)
    fail (1, root, "no driver root of this software GPU", "name the folder that create was given");
  close (fd);
  return state;
}

static int
error_code (const char *text)
{
  for (size_t i = 0; i < softgpu_error_count; i++)
    if (strcmp (softgpu_errors[i].name, text) == 0)
      return softgpu_errors[i].code;
  for (size_t i = 0; i < softgpu_nvml_error_count; i++)
    if (strcmp (softgpu_nvml_errors[i].name, text) == 0)
      return softgpu_nvml_errors[i].code;
  if (*text < '0' || *text > '9')
    fail (2, "--error", text, "give a name such as CUDA_ERROR_OUT_OF_MEMORY, or a number");
  return (int) option_number ("--error", text, 0, 999);
}

static const char *const steps[] = {
  [SOFTGPU_LOCK] = "lock",         [SOFTGPU_CHECKPOINT_STEP] = "checkpoint",
  [SOFTGPU_RESTORE] = "restore",   [SOFTGPU_UNLOCK] = "unlock",
  [SOFTGPU_COMPLETE] = "complete", NULL,
};

/* Makes every process check for ordered failures, now and whenever it starts.  */
static void
call_attention (struct softgpu_state *state)
{
  state->ordered = 1;
  for (unsigned i = 0; i < SOFTGPU_MAX_SLOTS; i++)
    state->slot[i].attention |= SOFTGPU_ORDERED;
}

static void
report (struct softgpu_gpu *gpu, unsigned xid)
{
  gpu->xid[gpu->xid_count % SOFTGPU_XIDS] = xid;
  gpu->xid_count++;
}

/* A fault of one client ends the contexts of all clients of its server that are on the GPU. The
   server takes no new one until they have ended. Source: NVIDIA's guide to MPS, "Error
   Containment".
 */
static void
fault_mps (const char *root, unsigned gpu)
{
  struct attachment tie;
  attach_to (&tie, root);
  softgpu_lock (&tie);
  softgpu_reap (&tie);
  for (unsigned slot = 0; slot < tie.state->slots_used; slot++)
    {
      struct softgpu_slot *server = &tie.state->slot[slot];
      if (server->kind != SOFTGPU_MPS_SERVER || !server->gpu[gpu].contexts)
        continue;
      softgpu_fault_clients (tie.state, slot, ILLEGAL_ADDRESS);
      server->fault = ILLEGAL_ADDRESS;
    }
  report (&tie.state->gpu[gpu], XID_PAGE_FAULT);
  softgpu_unlock (&tie);
  softgpu_detach (&tie);
}

int
order_failures (int argc, char **argv)
{
  static const struct option options[] = {
    { "call", required_argument, NULL, 'c' },
    { "nth", required_argument, NULL, 'n' },
    { "gpu", required_argument, NULL, 'p' },
    { "error", required_argument, NULL, 'e' },
    { "lost", required_argument, NULL, 'l' },
    { "ecc", required_argument, NULL, 'g' },
    { "corrected", required_argument, NULL, 'k' },
    { "uncorrected", required_argument, NULL, 'u' },
    { "hang", no_argument, NULL, 'h' },
    { "event", required_argument, NULL, 'v' },
    { "xid", required_argument, NULL, 'x' },
    { "give-up", required_argument, NULL, 'G' },
    { "mps-fault", required_argument, NULL, 'F' },
    { NULL, 0, NULL, 0 },
  };
  const char *call = NULL;
  uint64_t nth = 0, corrected = 0, uncorrected = 0, xid = 0;
  int error = 0, lost = -1, ecc = -1, event = -1, only = -1, given_up = 0, faulty = -1;
  for (int option; (option = getopt_long (argc, argv, "", options, NULL)) != -1;)
    switch (option)
      {
      case 'c':
        call = optarg;
        break;
      case 'n':
        nth = option_number ("--nth", optarg, 0, UINT32_MAX);
        break;
      case 'p':
        only = (int) option_number ("--gpu", optarg, 0, SOFTGPU_MAX_GPUS - 1);
        break;
      case 'e':
        error = error_code (optarg);
        break;
      case 'l':
        lost = (int) option_number ("--lost", optarg, 0, SOFTGPU_MAX_GPUS - 1);
        break;
      case 'g':
        ecc = (int) option_number ("--ecc", optarg, 0, SOFTGPU_MAX_GPUS - 1);
        break;
      case 'k':
        corrected = option_number ("--corrected", optarg, 0, UINT32_MAX);
        break;
      case 'u':
        uncorrected = option_number ("--uncorrected", optarg, 0, UINT32_MAX);
        break;
      case 'h':
        error = SOFTGPU_HANGS;
        break;
      case 'v':
        event = (int) option_number ("--event", optarg, 0, SOFTGPU_MAX_GPUS - 1);
        break;
      case 'x':
        xid = option_number ("--xid", optarg, 0, 999);
        break;
      case 'F':
        faulty = (int) option_number ("--mps-fault", optarg, 0, SOFTGPU_MAX_GPUS - 1);
        break;
      case 'G':
        given_up = (int) option_word ("--give-up", optarg, steps) + 1;
        break;
      default:
        return 2;
      }
  if (argc - optind != 1 || (!call && lost < 0 && ecc < 0 && event < 0 && !given_up && faulty < 0)
      || (call && !error) || (event >= 0 && !xid))
    fail (2, "fail", "nothing to order",
          "name ROOT, and --call with --error or --hang, --lost, --ecc, --give-up, --mps-fault, or "
          "--event with --xid");
  if (only >= 0 && (!call || strncmp (call, "nvmlDevice", strlen ("nvmlDevice")) != 0))
    fail (2, "--gpu", "only calls of NVML name a GPU", "give a --call such as nvmlDeviceGetUUID");
  struct softgpu_state *state = open_state (argv[optind]);
  const int gpus = (int) state->gpu_count;
  if (lost >= gpus || ecc >= gpus || event >= gpus || only >= gpus || faulty >= gpus)
    fail (2, "fail", "there is no such GPU", "count them from 0");
  if (call)
    {
      unsigned i = 0;
      while (i < SOFTGPU_ORDERS && state->order[i].error)
        i++;
      if (i == SOFTGPU_ORDERS || strlen (call) >= sizeof state->order[i].call)
        fail (1, call, "no more orders are taken", "run softgpu heal first");
      struct softgpu_order *order = &state->order[i];
      strcpy (order->call, call);
      order->nth = (uint32_t) nth;
      order->gpu = (uint32_t) (only + 1);
      order->calls = 0;
      order->error = error;
    }
  if (lost >= 0)
    {
      for (int g = 0; g < (int) state->entries; g++)
        if (g == lost || state->gpu[g].parent == (unsigned) lost + 1)
          state->gpu[g].lost = 1;
      report (&state->gpu[lost], XID_OFF_THE_BUS);
    }
  if (faulty >= 0)
    {
      fault_mps (argv[optind], (unsigned) faulty);
      return 0;
    }
  if (given_up)
    state->given_up = (unsigned) given_up;
  if (event >= 0)
    report (&state->gpu[event], (unsigned) xid);
  if (ecc >= 0)
    {
      state->gpu[ecc].ecc_corrected += corrected;
      state->gpu[ecc].ecc_uncorrected += uncorrected;
      if (uncorrected)
        report (&state->gpu[ecc], XID_DOUBLE_BIT_ECC);
    }
  call_attention (state);
  return 0;
}

int
heal (const char *root)
{
  struct softgpu_state *state = open_state (root);
  state->ordered = state->given_up = 0;
  for (unsigned i = 0; i < SOFTGPU_ORDERS; i++)
    state->order[i].error = 0;
  for (unsigned g = 0; g < state->entries; g++)
    {
      state->gpu[g].lost = 0;
      state->gpu[g].ecc_corrected = state->gpu[g].ecc_uncorrected = 0;
    }
  for (unsigned i = 0; i < SOFTGPU_MAX_SLOTS; i++)
    state->slot[i].attention &= ~(uint32_t) SOFTGPU_ORDERED;
  return 0;
}
