/* nvidia-smi, for the software GPU: what NVML says, as a table, a list or fields. It needs a C
   library and, at run time, libnvidia-ml.so.1: the software GPU's, the shim's, or a real one.  */

#include "smi/smi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct nvml nvml;

static const char help[]
    = "usage: nvidia-smi                      a table of GPUs and their processes\n"
      "       nvidia-smi -L                   a list of GPUs\n"
      "       nvidia-smi --query-gpu=FIELD,... --format=csv[,noheader][,nounits]\n"
      "       -i INDEX|UUID                   only this GPU\n";

static const char rule[]
    = "+-----------------------------------------------------------------------"
      "--------+\n";

static int
start (void)
{
  void *library = dlopen ("libnvidia-ml.so.1", RTLD_NOW);
  if (!library)
    {
      fprintf (stderr, "nvidia-smi: libnvidia-ml.so.1: %s; run it where a driver is mounted\n",
               dlerror ());
      return 12;
    }
#define LOAD(name, symbol, parameters)                                                             \
  *(void **) &nvml.name = dlsym (library, symbol);                                                 \
  if (!nvml.name)                                                                                  \
    {                                                                                              \
      fprintf (stderr, "nvidia-smi: libnvidia-ml.so.1: no " symbol "; use a newer driver\n");      \
      return 13;                                                                                   \
    }
  NVML_FUNCTIONS (LOAD)
#undef LOAD
  *(void **) &nvml.errorString = dlsym (library, "nvmlErrorString");
  nvmlReturn_t rc = nvml.init ();
  if (rc != NVML_SUCCESS)
    fprintf (stderr, "nvidia-smi: NVML: %s; run it where a GPU is granted\n",
             nvml.errorString ? nvml.errorString (rc) : "it cannot be initialised");
  return rc;
}

static bool
is_named (nvmlDevice_t device, unsigned index, const char *name)
{
  char uuid[96], number[16];
  snprintf (number, sizeof number, "%u", index);
  return strcmp (number, name) == 0
         || (nvml.uuid (device, uuid, sizeof uuid) == NVML_SUCCESS && strcmp (uuid, name) == 0);
}

bool
find_device (unsigned *index, const char *only, nvmlDevice_t *device)
{
  unsigned count = 0;
  nvml.count (&count);
  for (; *index < count; ++*index)
    if (nvml.handle (*index, device) == NVML_SUCCESS && (!only || is_named (*device, *index, only)))
      return true;
  return false;
}

static void
list_names (const char *only)
{
  nvmlDevice_t device;
  for (unsigned index = 0; find_device (&index, only, &device); index++)
    {
      char name[96] = "?", uuid[96] = "?";
      nvml.name (device, name, sizeof name);
      nvml.uuid (device, uuid, sizeof uuid);
      printf ("GPU %u: %s (UUID: %s)\n", index, name, uuid);
    }
}

static void
show_device (nvmlDevice_t device, unsigned index)
{
  char name[96] = "?", memory[40] = "n/a", load[16] = "n/a", sensors[32] = "";
  nvmlMemory_t bytes;
  nvmlUtilization_t rates;
  nvmlPciInfo_t pci = { .busId = "?" };
  unsigned celsius, milliwatts;
  nvml.name (device, name, sizeof name);
  nvml.pci (device, &pci);
  if (nvml.memory (device, &bytes) == NVML_SUCCESS)
    snprintf (memory, sizeof memory, "%llu / %llu MiB", bytes.used >> 20, bytes.total >> 20);
  if (nvml.utilisation (device, &rates) == NVML_SUCCESS)
    snprintf (load, sizeof load, "%u %%", rates.gpu);
  if (nvml.temperature (device, NVML_TEMPERATURE_GPU, &celsius) == NVML_SUCCESS
      && nvml.power (device, &milliwatts) == NVML_SUCCESS)
    snprintf (sensors, sizeof sensors, "%u C %u W", celsius, milliwatts / 1000);
  printf ("| %3u  %-22.22s %-16s %-11.11s %20s |\n", index, name, pci.busId, sensors, memory);
  printf ("| %77s |\n", load);
}

/* Returns how many there were.  */
static unsigned
show_processes (nvmlDevice_t device, unsigned index)
{
  nvmlProcessInfo_t list[512];
  unsigned count = sizeof list / sizeof *list;
  if (nvml.processes (device, &count, list) != NVML_SUCCESS)
    return 0;
  for (unsigned i = 0; i < count; i++)
    {
      char name[256] = "?";
      nvml.processName (list[i].pid, name, sizeof name);
      printf ("| %3u  %10u  %-44.44s %11llu MiB |\n", index, list[i].pid, name,
              list[i].usedGpuMemory >> 20);
    }
  return count;
}

static void
table (const char *only)
{
  char driver[96] = "?", title[128];
  int cuda = 0;
  unsigned devices = 0, processes = 0;
  nvmlDevice_t device;
  nvml.driverVersion (driver, sizeof driver);
  nvml.cudaVersion (&cuda);
  snprintf (title, sizeof title, "Driver Version: %s   CUDA Version: %d.%d", driver, cuda / 1000,
            cuda % 1000 / 10);
  printf ("%s| NVIDIA-SMI  %-65s |\n%s", rule, title, rule);
  printf ("| %3s  %-22s %-16s %-11s %20s |\n| %77s |\n%s", "GPU", "Name", "Bus-Id", "Temp Power",
          "Memory-Usage", "GPU-Util", rule);
  for (unsigned index = 0; find_device (&index, only, &device); index++, devices++)
    show_device (device, index);
  if (!devices)
    printf ("| %-77s |\n", "No devices were found");
  printf ("%s\n%s| Processes:%67s |\n", rule, rule, "");
  printf ("| %3s  %10s  %-44s %15s |\n%s", "GPU", "PID", "Process name", "GPU Memory", rule);
  for (unsigned index = 0; find_device (&index, only, &device); index++)
    processes += show_processes (device, index);
  if (!processes)
    printf ("| %-77s |\n", "No running processes found");
  fputs (rule, stdout);
}

int
main (int argc, char **argv)
{
  const char *fields = NULL, *only = NULL, *formats = "";
  bool list = false;
  for (int i = 1; i < argc; i++)
    {
      const char *argument = argv[i];
      if (strcmp (argument, "-L") == 0 || strcmp (argument, "--list-gpus") == 0)
        list = true;
      else if (strncmp (argument, "--query-gpu=", 12) == 0)
        fields = argument + 12;
      else if (strncmp (argument, "--format=", 9) == 0)
        formats = argument + 9;
      else if (strncmp (argument, "--id=", 5) == 0)
        only = argument + 5;
      else if (strcmp (argument, "-i") == 0 && i + 1 < argc)
        only = argv[++i];
      else
        {
          bool asked = strcmp (argument, "-h") == 0 || strcmp (argument, "--help") == 0;
          fputs (help, asked ? stdout : stderr);
          return asked ? 0 : 2;
        }
    }
  if (fields && strncmp (formats, "csv", 3) != 0)
    {
      fputs ("nvidia-smi: --format: missing or not csv; add --format=csv\n", stderr);
      return 2;
    }
  int status = start ();
  if (status)
    return status;
  if (fields)
    status = query (fields, formats, only);
  else if (list)
    list_names (only);
  else
    table (only);
  nvml.shutdown ();
  return status;
}
