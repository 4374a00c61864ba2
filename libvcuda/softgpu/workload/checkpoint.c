/* The command `checkpoint`: takes a process of the same container off the GPU, or brings it back.
 */

#include <dlfcn.h>
#include <string.h>

#include "workload/workload.h"

static const struct step
{
  const char *word, *symbol;
} steps[] = {
  { "lock", "cuCheckpointProcessLock" },
  { "checkpoint", "cuCheckpointProcessCheckpoint" },
  { "restore", "cuCheckpointProcessRestore" },
  { "unlock", "cuCheckpointProcessUnlock" },
};

/* A driver answers after a copy that is under way.  */
static int
state_of (void *library, int pid)
{
  CUresult (*get_state) (int, int *);
  int state = -1;
  *(void **) &get_state = dlsym (library, "cuCheckpointProcessGetState");
  if (get_state)
    get_state (pid, &state);
  return state;
}

static CUresult
take (void *library, const char *word, int pid)
{
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    if (strcmp (word, steps[i].word) == 0)
      {
        CUresult (*call) (int, void *);
        *(void **) &call = dlsym (library, steps[i].symbol);
        return call ? call (pid, NULL) : CUDA_ERROR_NOT_SUPPORTED;
      }
  FAIL (2, "%s: no step; give lock, checkpoint, restore or unlock\n", word);
}

int
checkpoint (int pid, char **words)
{
  void *library = dlopen ("libcuda.so.1", RTLD_NOW);
  CUresult rc = CUDA_SUCCESS;
  state_of (library, pid);
  for (; *words && rc == CUDA_SUCCESS; words++)
    rc = take (library, *words, pid);
  printf ("{\"pid\": %d, \"error\": \"%s\", \"state\": %d}\n", pid, error_name (rc),
          state_of (library, pid));
  return rc == CUDA_SUCCESS ? 0 : 1;
}
