/* A driver of which every function tells how many calls of the container are counted as inside, as
   libcuda.so.1. GATE_NAMES is a header of lines NAME (function).

   A function takes nine integers and eight doubles, so arguments of each kind and on the stack. It
   returns their weighted sum, which shows each of them, and above it the count. If the first is
   CALL_BACK it calls the second with the third instead; if it is STAY, it stays for a moment and is
   counted meanwhile in the file that the second names.  */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "mock/gate.h"
#include "vcuda_abi.h"

#define EXPORT __attribute__ ((visibility ("default")))

static uint64_t
calls_inside (void)
{
  static struct vcuda_usage *usage;
  if (!usage)
    {
      int fd = open (VCUDA_GUEST_USAGE, O_RDWR);
      usage = mmap (NULL, sizeof *usage, PROT_READ, MAP_SHARED, fd, 0);
      close (fd);
    }
  uint64_t sum = 0;
  for (int i = 0; i < VCUDA_MAX_PROCESSES; i++)
    sum += __atomic_load_n (&usage->slot[i].calls_inside, __ATOMIC_SEQ_CST);
  return sum;
}

static void
stay (const char *path)
{
  static uint32_t *count;
  if (!__atomic_load_n (&count, __ATOMIC_ACQUIRE))
    {
      int fd = open (path, O_RDWR);
      void *page = mmap (NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      close (fd);
      __atomic_store_n (&count, page, __ATOMIC_RELEASE);
    }
  __atomic_fetch_add (count, 1, __ATOMIC_SEQ_CST);
  nanosleep (&(struct timespec){ .tv_nsec = 20000 }, NULL);
  __atomic_fetch_sub (count, 1, __ATOMIC_SEQ_CST);
}

static uint64_t
answer (GATE_PARAMETERS)
{
  uint64_t inside = calls_inside ();
  if (a == CALL_BACK)
    ((void (*) (void *)) b) ((void *) c);
  else if (a == STAY)
    stay ((const char *) b);
  return GATE_SUM | inside << GATE_COUNT_SHIFT;
}

#define NAME(function)                                                                             \
  EXPORT uint64_t function (GATE_PARAMETERS) { return answer (GATE_ARGUMENTS); }

#include GATE_NAMES

EXPORT int
cuInit (unsigned int flags)
{
  return flags != 0;
}

EXPORT int
cuGetProcAddress_v2 (const char *symbol, void **pointer, int version, uint64_t flags, int *status)
{
  (void) version, (void) flags;
  Dl_info own;
  void *self = dladdr ((void *) answer, &own) ? dlopen (own.dli_fname, RTLD_LAZY) : NULL;
  *pointer = self ? dlsym (self, symbol) : NULL;
  if (!strcmp (symbol, "cuFromTheFuture")) /* no header has it */
    *pointer = (void *) answer;
  if (status)
    *status = *pointer ? 0 : 1;
  return *pointer ? 0 : 500; /* CUDA_ERROR_NOT_FOUND */
}
