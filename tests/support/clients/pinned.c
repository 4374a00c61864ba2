/* usage: pinned PROCESSOR NAME=VALUE ... COMMAND [ARGUMENT ...]

   Runs COMMAND with these environment variables on one processor, without address randomisation:
   taskset, setarch and env in one start.  */

#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <unistd.h>

int
main (int argc, char **argv)
{
  cpu_set_t processor;
  CPU_ZERO (&processor);
  CPU_SET (argc > 1 ? atoi (argv[1]) : 0, &processor);
  int at = 2;
  while (at < argc && strchr (argv[at], '='))
    putenv (argv[at++]);
  if (at >= argc)
    return 2;
  if (sched_setaffinity (0, sizeof processor, &processor) == 0
      && personality (ADDR_NO_RANDOMIZE) != -1)
    execvp (argv[at], argv + at);
  perror (argv[at]);
  return 127;
}
