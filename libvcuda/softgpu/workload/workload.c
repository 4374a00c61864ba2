/* The workload's driver, and its short commands. The same program runs on a real one.  */

#include "workload/workload.h"

#include <dlfcn.h>
#include <time.h>

struct gpu_driver gpu;

const char *
error_name (CUresult rc)
{
  const char *name = NULL;
  if (gpu.getErrorName)
    gpu.getErrorName (rc, &name);
  return name ? name : "CUDA_ERROR_UNKNOWN";
}

void
must (CUresult rc, const char *what)
{
  if (rc != CUDA_SUCCESS)
    FAIL (1, "%s: %s; run it where a GPU is granted\n", what, error_name (rc));
}

void
start_driver (void)
{
  void *library = dlopen ("libcuda.so.1", RTLD_NOW);
  if (!library)
    FAIL (1, "libcuda.so.1: %s; run it where a driver is mounted\n", dlerror ());
#define LOAD(name, symbol, parameters)                                                             \
  *(void **) &gpu.name = dlsym (library, symbol);                                                  \
  if (!gpu.name)                                                                                   \
    FAIL (1, "libcuda.so.1: no " symbol "; use a newer driver\n");
  DRIVER_FUNCTIONS (LOAD)
#undef LOAD
  must (gpu.cuInit (0), "cuInit");
}

void *
must_allocate (uint64_t count, size_t bytes, const char *option, const char *hint)
{
  void *memory = calloc (count, bytes);
  if (!memory)
    FAIL (1, "%s: out of memory; give fewer %s\n", option, hint);
  return memory;
}

CUdevice
use_device (uint64_t ordinal)
{
  CUdevice device;
  CUcontext context;
  must (gpu.deviceGet (&device, (int) ordinal), "cuDeviceGet");
  must (gpu.primaryRetain (&context, device), "cuDevicePrimaryCtxRetain");
  must (gpu.ctxSetCurrent (context), "cuCtxSetCurrent");
  return device;
}

double
seconds_now (void)
{
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC, &now);
  return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

void
sleep_for (double seconds)
{
  double end = seconds_now () + seconds;
  for (double left; (left = end - seconds_now ()) > 0;)
    {
      struct timespec pause = { .tv_sec = (time_t) left };
      pause.tv_nsec = (long) ((left - (double) pause.tv_sec) * 1e9);
      nanosleep (&pause, NULL);
    }
}

int
print_info (const struct options *options)
{
  (void) options;
  int count;
  must (gpu.deviceGetCount (&count), "cuDeviceGetCount");
  printf ("{\"devices\": [");
  for (int i = 0; i < count; i++)
    {
      CUuuid uuid;
      char name[256];
      size_t free_bytes, total_bytes;
      CUdevice device = use_device ((uint64_t) i);
      must (gpu.deviceGetName (name, sizeof name, device), "cuDeviceGetName");
      must (gpu.deviceGetUuid (&uuid, device), "cuDeviceGetUuid");
      must (gpu.memGetInfo (&free_bytes, &total_bytes), "cuMemGetInfo");
      printf ("%s{\"ordinal\": %d, \"name\": \"%s\", \"uuid\": \"GPU-", i ? ", " : "", i, name);
      for (int byte = 0; byte < 16; byte++)
        printf ("%s%02x", byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "",
                (unsigned char) uuid.bytes[byte]);
      printf ("\", \"total_bytes\": %zu, \"free_bytes\": %zu}", total_bytes, free_bytes);
      gpu.primaryRelease (device);
    }
  printf ("]}\n");
  return 0;
}

/* Asks for chunks until one is refused, then for ever smaller ones, down to a single byte: the
   sum is the limit to the byte where memory is counted so, to the driver's granule elsewhere.  */
int
allocate_all (const struct options *options)
{
  use_device (options->ordinal);
  uint64_t whole = 0, total = 0;
  CUresult first = CUDA_SUCCESS;
  for (uint64_t size = options->chunk; size; size /= 2)
    {
      CUdeviceptr memory;
      CUresult rc;
      while ((rc = gpu.memAlloc (&memory, size)) == CUDA_SUCCESS)
        total += size;
      if (first == CUDA_SUCCESS)
        {
          first = rc;
          whole = total;
        }
      if (rc != CUDA_ERROR_OUT_OF_MEMORY)
        break;
    }
  printf ("{\"allocated_bytes\": %llu, \"exact_bytes\": %llu, \"error\": \"%s\"}\n",
          (unsigned long long) whole, (unsigned long long) total, error_name (first));
  fflush (stdout);
  sleep_for (options->hold_s);
  return first == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1;
}

int
hold (const struct options *options)
{
  use_device (options->ordinal);
  uint64_t bytes = options->bytes;
  CUdeviceptr memory;
  CUresult rc = bytes ? gpu.memAlloc (&memory, bytes) : CUDA_SUCCESS;
  printf ("{\"held_bytes\": %llu, \"error\": \"%s\"}\n",
          rc == CUDA_SUCCESS ? (unsigned long long) bytes : 0, error_name (rc));
  fflush (stdout);
  if (rc == CUDA_SUCCESS)
    sleep_for (options->seconds);
  return rc == CUDA_SUCCESS ? 0 : 1;
}
