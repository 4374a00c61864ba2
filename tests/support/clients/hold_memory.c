/* hold_memory BYTES [PAGE]: holds so much GPU memory full of a pattern, and maps the file PAGE.

   Prints a line of JSON when it is ready, and one for each line that it reads: the pattern was
   still there, and has been replaced by the next one. Ends with its standard input, or with 1.  */

#include <cuda.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum
{
  PAGE_BYTES = 4096,
  LINE_BYTES = 256,
};

#define MUST(call)                                                                                 \
  do                                                                                               \
    {                                                                                              \
      CUresult must = call;                                                                        \
      if (must != CUDA_SUCCESS)                                                                    \
        {                                                                                          \
          fprintf (stderr, "%s gave %d\n", #call, (int) must);                                     \
          exit (1);                                                                                \
        }                                                                                          \
    }                                                                                              \
  while (0)

static void
map (const char *page)
{
  int fd = open (page, O_RDWR);
  if (fd < 0 || mmap (NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED)
    {
      perror (page);
      exit (1);
    }
}

static void
check (CUdeviceptr memory, size_t words, uint32_t expected)
{
  uint32_t last[2];
  MUST (cuMemcpyDtoH (last, memory + words * sizeof *last - sizeof last, sizeof last));
  if (last[0] == expected && last[1] == expected)
    return;
  fprintf (stderr, "found %u %u instead of %u\n", last[0], last[1], expected);
  exit (1);
}

int
main (int argc, char **argv)
{
  CUcontext context;
  CUdevice device;
  CUdeviceptr memory;
  char line[LINE_BYTES];
  uint32_t rounds = 0, pid = (uint32_t) getpid ();

  if (argc < 2)
    return 2;
  if (argc > 2)
    map (argv[2]);
  size_t words = strtoul (argv[1], NULL, 10) / sizeof (uint32_t);
  MUST (cuInit (0));
  MUST (cuDeviceGet (&device, 0));
  MUST (cuCtxCreate (&context, NULL, 0, device));
  MUST (cuMemAlloc (&memory, words * sizeof (uint32_t)));
  MUST (cuMemsetD32 (memory, pid, words));
  printf ("{\"pid\": %u}\n", pid);
  fflush (stdout);
  while (fgets (line, sizeof line, stdin))
    {
      check (memory, words, pid + rounds);
      rounds++;
      MUST (cuMemsetD32 (memory, pid + rounds, words));
      printf ("{\"rounds\": %u}\n", rounds);
      fflush (stdout);
    }
  return 0;
}
