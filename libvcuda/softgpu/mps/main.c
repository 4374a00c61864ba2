/* nvidia-cuda-mps-control and nvidia-cuda-mps-server of the software GPU: version 2 of NVIDIA's
   control interface.  */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mps/daemon.h"

static int
usage (void)
{
  fputs ("usage: nvidia-cuda-mps-control [-d | -f] [-multiuser-server]\n", stderr);
  return 1;
}

int
main (int argc, char **argv)
{
  const char *name = strrchr (argv[0], '/') ? strrchr (argv[0], '/') + 1 : argv[0];
  if (strcmp (name, "nvidia-cuda-mps-server") == 0)
    {
      if (argc != 4)
        return usage ();
      mps_serve (atoi (argv[1]), (uid_t) strtoul (argv[2], NULL, 10), *argv[3] == 'm');
    }
  bool daemon = false, in_background = false, multiuser = false;
  for (int i = 1; i < argc; i++)
    if (strcmp (argv[i], "-d") == 0 || strcmp (argv[i], "-f") == 0)
      {
        daemon = true;
        in_background = argv[i][1] == 'd';
      }
    else if (strcmp (argv[i], "-multiuser-server") == 0)
      multiuser = true;
    else
      return usage ();
  const char *pipes = getenv ("CUDA_MPS_PIPE_DIRECTORY");
  if (!pipes || !*pipes)
    pipes = MPS_DEFAULT_PIPES;
  return daemon ? mps_run (pipes, in_background, multiuser) : mps_ask (pipes);
}
