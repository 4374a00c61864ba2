/* Stands before the driver's checkpoint functions and does harm at their n-th call.

   FAULTY_DRIVER names the real library. FAULTY_PLAN names a file of three words: how many calls
   there were, at which to do harm, and which harm (enum harm). Calls are those that change a
   process's state. Killed is the process that calls, its parent (the program that suspends), or
   both at once; or the target.  */

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum harm
{
  BOTH_BEFORE = 1,
  BOTH_AFTER,
  PARENT_BEFORE,
  PARENT_AFTER,
  WORKER_BEFORE,
  WORKER_AFTER,
  TARGET_BEFORE,
  TARGET_AFTER,
  REFUSE,
  REFUSE_AFTER,
};

struct plan
{
  _Atomic uint32_t calls;
  uint32_t at, harm;
};

static struct plan *plan;
static void *real;

__attribute__ ((constructor)) static void
begin (void)
{
  int fd = open (getenv ("FAULTY_PLAN"), O_RDWR | O_CLOEXEC);
  plan = mmap (NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close (fd);
  real = dlopen (getenv ("FAULTY_DRIVER"), RTLD_NOW);
  if (plan == MAP_FAILED || !real)
    abort ();
}

static void
end (int parent, int self)
{
  if (parent)
    kill (getppid (), SIGKILL);
  if (self)
    kill (getpid (), SIGKILL);
}

static int
call (const char *name, int pid, void *args)
{
  int (*function) (int, void *) = (int (*) (int, void *)) dlsym (real, name);
  uint32_t harm = atomic_fetch_add (&plan->calls, 1) + 1 == plan->at ? plan->harm : 0;
  if (harm == REFUSE)
    return 999;
  if (harm == TARGET_BEFORE)
    kill (pid, SIGKILL);
  end (harm == BOTH_BEFORE || harm == PARENT_BEFORE, harm == BOTH_BEFORE || harm == WORKER_BEFORE);
  int status = function (pid, args);
  if (harm == TARGET_AFTER)
    kill (pid, SIGKILL);
  end (harm == BOTH_AFTER || harm == PARENT_AFTER, harm == BOTH_AFTER || harm == WORKER_AFTER);
  return harm == REFUSE_AFTER ? 999 : status;
}

#define PASS(name)                                                                                 \
  int name (int pid, void *args) { return call (#name, pid, args); }
PASS (cuCheckpointProcessLock)
PASS (cuCheckpointProcessCheckpoint)
PASS (cuCheckpointProcessRestore)
PASS (cuCheckpointProcessUnlock)

int
cuCheckpointProcessGetState (int pid, int *state)
{
  return ((int (*) (int, int *)) dlsym (real, "cuCheckpointProcessGetState")) (pid, state);
}

int
cuInit (unsigned flags)
{
  return ((int (*) (unsigned)) dlsym (real, "cuInit")) (flags);
}
