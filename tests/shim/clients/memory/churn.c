/* churn MOST SEED: allocates and frees pieces of any size up to MOST for ever, to be killed.  */

#include <unistd.h>

#include "common/gpu.h"

int
main (int argc, char **argv)
{
  CUdeviceptr held[16] = { 0 };
  if (argc != 3)
    return 2;
  size_t most = strtoull (argv[1], NULL, 10);
  srand ((unsigned) atoi (argv[2]));
  use_gpu (0);
  if (write (STDOUT_FILENO, "ready\n", 6) < 0)
    return 1;
  for (;;)
    {
      int at = rand () % 16;
      if (held[at])
        MUST (cuMemFree (held[at]));
      if (cuMemAlloc (&held[at], (size_t) rand () % most + 1) != CUDA_SUCCESS)
        held[at] = 0;
    }
}
