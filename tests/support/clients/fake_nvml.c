/* A library with the functions of NVML that a host's facts are read by.  */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long u64;
/* Counts its starts in the file ASKED, a path from its folder, so that a test sees whether it was
   asked at all.  */
int
nvmlInit_v2 (void)
{
  static const char here;
  char path[4096];
  Dl_info own;
  dladdr (&here, &own);
  int folder = (int) (strrchr (own.dli_fname, '/') - own.dli_fname);
  snprintf (path, sizeof path, "%.*s/" ASKED, folder, own.dli_fname);
  FILE *file = fopen (path, "a");
  if (file)
    {
      fputc ('x', file);
      fclose (file);
    }
  return INIT;
}
int
nvmlShutdown (void)
{
  return 0;
}
const char *
nvmlErrorString (int status)
{
  return status == 9 ? "Driver Not Loaded" : "?";
}
int
nvmlDeviceGetCount_v2 (unsigned *count)
{
  *count = COUNT;
  return 0;
}
int
nvmlDeviceGetHandleByIndex_v2 (unsigned index, void **device)
{
  *device = (void *) (u64) (index + 1);
  return 0;
}
int
nvmlDeviceGetUUID (void *device, char *uuid, unsigned size)
{
  snprintf (uuid, size, "GPU-%llu", (u64) device - 1);
  return 0;
}
int
nvmlDeviceGetName (void *device, char *name, unsigned size)
{
  (void) device;
  snprintf (name, size, "Soft");
  return 0;
}
int
nvmlDeviceGetMinorNumber (void *device, unsigned *minor)
{
  *minor = (unsigned) (u64) device - 1;
  return 0;
}
int
nvmlSystemGetCudaDriverVersion_v2 (int *version)
{
  *version = 13000;
  return 0;
}
int
nvmlDeviceGetCudaComputeCapability (void *device, int *major, int *minor)
{
  (void) device;
  *major = 9;
  *minor = 0;
  return 0;
}
int
nvmlDeviceGetBrand (void *device, unsigned *brand)
{
  (void) device;
  *brand = 2;
  return 0;
}
struct pci
{
  char legacy[16];
  unsigned numbers[5];
  char id[32];
};
int
nvmlDeviceGetPciInfo_v3 (void *device, struct pci *pci)
{
  snprintf (pci->id, 32, "00000000:0%llu:00.0", (u64) device - 1);
  return 0;
}
int
nvmlDeviceGetHandleByUUID (const char *uuid, void **device)
{
  *device = (void *) (strtoull (uuid + 4, NULL, 10) + 1);
  return 0;
}
int
nvmlDeviceGetPersistenceMode (void *device, unsigned *mode)
{
  return PERSISTENCE;
}
int
nvmlDeviceGetMemoryInfo (void *device, u64 memory[3])
{
  (void) device;
  memory[0] = memory[1] = BYTES;
  memory[2] = 0;
  return 0;
}
