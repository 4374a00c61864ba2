/* mocked LIMIT: on the mock driver, what the software GPU cannot show. Prints one JSON object.  */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "common/gpu.h"

/* Is POINTER code of the shim, the file that this program's cuInit comes from?  */
static int
ours (void *pointer)
{
  Dl_info here, there;
  return dladdr ((void *) cuInit, &here) && dladdr (pointer, &there)
         && here.dli_fbase == there.dli_fbase;
}

static void *
ask (const char *symbol, unsigned long long flags)
{
  void *pointer = NULL;
  CUdriverProcAddressQueryResult status;
  cuGetProcAddress (symbol, &pointer, 12000, flags, &status);
  return pointer;
}

int
main (int argc, char **argv)
{
  if (argc != 2)
    return 2;
  size_t limit = strtoull (argv[1], NULL, 10), pitch;
  CUdeviceptr pointer;
  errno = 77;
  use_gpu (0);
  int kept = errno;

  int pool[3];
  for (int i = 0; i < 3; i++)
    pool[i] = (int) cuMemAllocFromPoolAsync (&pointer, limit * 2 / 5, NULL, NULL);
  MUST (cuMemFreeAsync (pointer, NULL) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_SUCCESS);
  size_t left, total;
  MUST (cuMemGetInfo (&left, &total));
  /* 100 rows of 1 byte take 100 pitches, and its inner allocation is not charged again.  */
  MUST (cuMemAllocPitch (&pointer, &pitch, 1, 100, 4));
  size_t after_pitch;
  MUST (cuMemGetInfo (&after_pitch, &total));
  CUresult too_wide = cuMemAllocPitch (&pointer, &pitch, (size_t) 1 << 40, (size_t) 1 << 40, 4);

  /* Five private tables: the page names the last four.  */
  for (int i = 0; i < 5; i++)
    {
      const void *table;
      CUuuid id = { .bytes = { (char) (i + 1) } };
      MUST (cuGetExportTable (&table, &id));
    }

  int per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  printf ("{\"errno\": %d, \"pool\": [%d, %d, %d], \"left\": %zu, \"pitched\": %zu, "
          "\"too_wide\": %d, ",
          kept, pool[0], pool[1], pool[2], left, left - after_pitch, (int) too_wide);
  printf ("\"missing\": %d, ", (int) cuMemAllocHost ((void **) &pointer, 1));
  printf ("\"ours\": {\"cuInit\": %d, \"cuMemAlloc\": %d, \"cuMemFree\": %d, "
          "\"cuGetProcAddress\": %d, \"per_thread\": %d, \"future\": %d}, "
          "\"absent\": %d}\n",
          ours (ask ("cuInit", 0)), ours (ask ("cuMemAlloc", 0)), ours (ask ("cuMemFree", 0)),
          ours (ask ("cuGetProcAddress", 0)), ours (ask ("cuMemAlloc", (unsigned) per_thread)),
          ours (ask ("cuFromTheFuture", 0)), ask ("cuNeverWas", 0) == NULL);
  return 0;
}
