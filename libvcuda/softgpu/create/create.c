/* softgpu: creates and removes a driver root, which has the layout of a driver container's root. */

#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "create/files.h"
#include "create/option_value.h"
#include "create/request.h"

enum
{
  NVIDIA_MAJOR = 195,
  CONTROL_MINOR = 255,
  UVM_MAJOR = 510,
};

#define LIBRARIES "usr/lib/x86_64-linux-gnu"

static const char *const compute_modes[] = { "default", "exclusive-process", NULL };
static const char *const caller_ends[] = {
  [SOFTGPU_LOST] = "lost",
  [SOFTGPU_STAYS] = "stays",
  [SOFTGPU_BACK] = "back",
  NULL,
};

static void
usage (FILE *out)
{
  fputs ("usage: softgpu create ROOT [--gpus N] [--model NAME] [--memory SIZE]\n"
         "                           [--driver-version VERSION] [--seed NUMBER]\n"
         "                           [--clock unkind|kind] [--slice TIME] [--switch-cost TIME]\n"
         "                           [--no-preemption] [--mps] [--submit-time TIME]\n"
         "                           [--context-memory SIZE] [--no-managed] [--copy-rate SIZE/s]\n"
         "                           [--bus-rate SIZE/s] [--checkpoint-rate SIZE/s]\n"
         "                           [--restore-rate SIZE/s] [--caller-end lost|stays|back]\n"
         "                           [--topology [nvlink=N][,nvswitch=N][,pcie=N][,numa=N]]\n"
         "                           [--mig GPU=[PROFILE,...]]...\n"
         "                           [--compute-mode default|exclusive-process] [--force]\n"
         "       softgpu mig ROOT GPU=[PROFILE,...]\n"
         "       softgpu fail ROOT --call NAME [--nth N] [--gpu GPU] --error ERROR | --hang\n"
         "       softgpu fail ROOT --lost GPU | --ecc GPU [--corrected N] [--uncorrected N]\n"
         "                         | --event GPU --xid N | --give-up STEP | --mps-fault GPU\n"
         "       softgpu heal ROOT\n"
         "       softgpu time ROOT [--json] [--as-is]\n"
         "       softgpu destroy ROOT\n",
         out);
}

static void
make_nodes (const struct request *request)
{
  char path[4096];
  make_folders (path_in (path, "%s/dev", request->root));
  make_node (path_in (path, "%s/dev/nvidiactl", request->root), NVIDIA_MAJOR, CONTROL_MINOR);
  make_node (path_in (path, "%s/dev/nvidia-uvm", request->root), UVM_MAJOR, 0);
  make_node (path_in (path, "%s/dev/nvidia-uvm-tools", request->root), UVM_MAJOR, 1);
  for (unsigned g = 0; g < request->gpus; g++)
    make_node (path_in (path, "%s/dev/nvidia%u", request->root, g), NVIDIA_MAJOR, g);
}

static void
install (const struct request *request)
{
  char self[4096], from[4096], to[4096], name[4096];
  ssize_t length = readlink ("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0)
    fail (1, "/proc/self/exe", strerror (errno), "mount /proc");
  self[length] = 0;
  *strrchr (self, '/') = 0;
  static const char *const libraries[] = { "libcuda.so", "libnvidia-ml.so" };
  make_folders (path_in (to, "%s/" LIBRARIES, request->root));
  for (int i = 0; i < 2; i++)
    {
      path_in (name, "%s.%s", libraries[i], request->driver_version);
      copy_file (path_in (from, "%s/%s.1", self, libraries[i]),
                 path_in (to, "%s/" LIBRARIES "/%s", request->root, name), 0644);
      make_link (name, path_in (to, "%s/" LIBRARIES "/%s.1", request->root, libraries[i]));
    }
  make_folders (path_in (to, "%s/usr/bin", request->root));
  static const char *const programs[]
      = { "nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server" };
  for (int i = 0; i < 3; i++)
    copy_file (path_in (from, "%s/%s", self, programs[i]),
               path_in (to, "%s/usr/bin/%s", request->root, programs[i]), 0755);
}

static void
describe (const struct request *request, const struct softgpu_state *state)
{
  char path[4096], text[1024];
  make_folders (path_in (path, "%s/proc/driver/nvidia/gpus", request->root));
  snprintf (text, sizeof text,
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  (vcuda software GPU)\n",
            request->driver_version);
  write_text (path_in (path, "%s/proc/driver/nvidia/version", request->root), text);
  for (unsigned g = 0; g < request->gpus; g++)
    {
      const struct softgpu_gpu *gpu = &state->gpu[g];
      make_folders (
          path_in (path, "%s/proc/driver/nvidia/gpus/0000:%02x:00.0", request->root, gpu->pci_bus));
      snprintf (text, sizeof text,
                "Model: \t\t %s\n"
                "IRQ:   \t\t 0\n"
                "GPU UUID: \t %s\n"
                "Video BIOS: \t 00.00.00.00.00\n"
                "Bus Type: \t PCIe\n"
                "DMA Size: \t 52 bits\n"
                "DMA Mask: \t 0xfffffffffffff\n"
                "Bus Location: \t 0000:%02x:00.0\n"
                "Device Minor: \t %u\n"
                "GPU Firmware: \t %s\n"
                "GPU Excluded:\t No\n",
                gpu->name, gpu->uuid, gpu->pci_bus, gpu->minor, request->driver_version);
      strcat (path, "/information");
      write_text (path, text);
    }
}

static int
remove_one (const char *path, const struct stat *file, int kind, struct FTW *where)
{
  (void) file, (void) kind, (void) where;
  if (remove (path) != 0)
    fail (1, path, strerror (errno), "remove it by hand");
  return 0;
}

static void
destroy (const char *root)
{
  char path[4096];
  path_in (path, "%s/softgpu.state", root);
  if (access (path, F_OK) != 0)
    fail (1, root, "no driver root of a software GPU", "name the folder that create was given");
  /* Removes only what create makes. A folder with other files stays, and is an error.  */
  static const char *const parts[] = { "dev", "usr", "proc/driver", "sys/bus/pci/devices" };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    {
      char part[4096];
      nftw (path_in (part, "%s/%s", root, parts[i]), remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
  unlink (path);
  static const char *const above[] = { "proc", "sys/bus/pci", "sys/bus", "sys" };
  for (size_t i = 0; i < sizeof above / sizeof *above; i++)
    rmdir (path_in (path, "%s/%s", root, above[i]));
  if (rmdir (root) != 0)
    fail (1, root, strerror (errno), "remove the other files there");
}

int
main (int argc, char **argv)
{
  static const struct option options[] = {
    { "gpus", required_argument, NULL, 'g' },
    { "model", required_argument, NULL, 'm' },
    { "memory", required_argument, NULL, 'b' },
    { "driver-version", required_argument, NULL, 'v' },
    { "seed", required_argument, NULL, 's' },
    { "clock", required_argument, NULL, 'k' },
    { "slice", required_argument, NULL, 't' },
    { "switch-cost", required_argument, NULL, 'w' },
    { "no-preemption", no_argument, NULL, 'p' },
    { "submit-time", required_argument, NULL, 'u' },
    { "mps", no_argument, NULL, 'M' },
    { "context-memory", required_argument, NULL, 'c' },
    { "no-managed", no_argument, NULL, 'n' },
    { "copy-rate", required_argument, NULL, 'r' },
    { "bus-rate", required_argument, NULL, 'B' },
    { "checkpoint-rate", required_argument, NULL, 'K' },
    { "restore-rate", required_argument, NULL, 'R' },
    { "caller-end", required_argument, NULL, 'E' },
    { "topology", required_argument, NULL, 'y' },
    { "mig", required_argument, NULL, 'i' },
    { "compute-mode", required_argument, NULL, 'C' },
    { "force", no_argument, NULL, 'f' },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
  };
  struct request request = { .model = "vcuda Software GPU",
                             .driver_version = "580.95.05",
                             .memory_bytes = 16ull << 30,
                             .slice_ns = SOFTGPU_DEFAULT_SLICE_NS,
                             .switch_ns = SOFTGPU_DEFAULT_SWITCH_NS,
                             .submit_ns = SOFTGPU_DEFAULT_SUBMIT_NS,
                             .gpus = 1 };
  struct clock_options clock = { 0 };
  bool force = false;
  if (argc > 1 && strcmp (argv[1], "fail") == 0)
    return order_failures (argc - 1, argv + 1);
  if (argc > 1 && strcmp (argv[1], "time") == 0)
    return print_times (argc - 1, argv + 1);
  if (argc == 3 && strcmp (argv[1], "heal") == 0)
    return heal (argv[2]);
  if (argc == 4 && strcmp (argv[1], "mig") == 0)
    {
      umask (022);
      divide (argv[2], open_state (argv[2]), argv[3]);
      return 0;
    }
  for (int option; (option = getopt_long (argc, argv, "h", options, NULL)) != -1;)
    switch (option)
      {
      case 'g':
        request.gpus = (unsigned) option_number ("--gpus", optarg, 1, SOFTGPU_MAX_GPUS);
        break;
      case 'm':
        request.model = optarg;
        break;
      case 'b':
        request.memory_bytes = option_size ("--memory", optarg, "");
        break;
      case 'v':
        if (!*optarg || strspn (optarg, "0123456789.") != strlen (optarg) || strlen (optarg) > 27)
          fail (2, "--driver-version", optarg, "give digits and dots, such as 580.95.05");
        request.driver_version = optarg;
        break;
      case 's':
        request.seed = option_number ("--seed", optarg, 0, UINT64_MAX);
        request.seeded = true;
        break;
      case 'c':
        request.context_bytes = option_size ("--context-memory", optarg, "");
        break;
      case 'n':
        request.no_managed = true;
        break;
      case 'r':
        request.copy_rate = option_size ("--copy-rate", optarg, "/s");
        break;
      case 'B':
        request.bus_rate = option_size ("--bus-rate", optarg, "/s");
        break;
      case 'K':
        request.checkpoint_rate = option_size ("--checkpoint-rate", optarg, "/s");
        break;
      case 'R':
        request.restore_rate = option_size ("--restore-rate", optarg, "/s");
        break;
      case 'E':
        request.caller_end = option_word ("--caller-end", optarg, caller_ends);
        break;
      case 'y':
        read_topology (optarg, &request.topology);
        break;
      case 'i':
        if (request.migs == SOFTGPU_MAX_GPUS)
          fail (2, "--mig", optarg, "give it once for each GPU");
        request.mig[request.migs++] = optarg;
        break;
      case 'C':
        request.exclusive = option_word ("--compute-mode", optarg, compute_modes) == 1;
        break;
      case 'f':
        force = true;
        break;
      case 'h':
        usage (stdout);
        return 0;
      default:
        if (read_clock_option (&request, &clock, option, optarg))
          break;
        usage (stderr);
        return 2;
      }
  choose_clock (&request, &clock);
  if (argc - optind != 2
      || (strcmp (argv[optind], "create") != 0 && strcmp (argv[optind], "destroy") != 0))
    {
      usage (stderr);
      return 2;
    }
  request.root = argv[optind + 1];
  umask (022);
  if (strcmp (argv[optind], "destroy") == 0)
    {
      destroy (request.root);
      return 0;
    }
  char path[4096];
  if (!force && access (path_in (path, "%s/softgpu.state", request.root), F_OK) == 0)
    fail (1, request.root, "a software GPU is there already, and containers may use it",
          "run 'softgpu destroy' on it first, or give --force to create its GPUs again");
  make_folders (request.root);
  make_nodes (&request);
  install (&request);
  /* The state file comes last: with it the root counts as made.  */
  struct softgpu_state *state = make_state (&request);
  describe (&request, state);
  describe_numa (&request, state);
  for (unsigned i = 0; i < request.migs; i++)
    divide (request.root, state, request.mig[i]);
  return 0;
}
