/* The command `checkpoint`: takes a process of the same container off the GPU, or brings it back.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
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

static CUresult
take (const char *word, int pid)
{
  void *library = dlopen ("libcuda.so.1", RTLD_NOW);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    if (strcmp (word, steps[i].word) == 0)
      {
        CUresult (*call) (int, void *);
        *(void **) &call = dlsym (library, steps[i].symbol);
        return call ? call (pid, NULL) : CUDA_ERROR_NOT_SUPPORTED;
      }
  fprintf (stderr, "vcuda-workload: %s: no step; give lock, checkpoint, restore or unlock\n", word);
  exit (2);
}

int
checkpoint (int pid, char **words)
{
  CUresult rc = CUDA_SUCCESS;
  for (; *words && rc == CUDA_SUCCESS; words++)
    rc = take (*words, pid);
  printf ("{\"pid\": %d, \"error\": \"%s\"}\n", pid, error_name (rc));
  return rc == CUDA_SUCCESS ? 0 : 1;
}
