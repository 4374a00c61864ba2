/* orphan PIECE [clone|exec]: holds a piece, makes a child that lives on, and dies of SIGKILL. The
   child is made by fork, or by the clone system call, of which no fork handler knows; with "exec" a
   cloned child becomes another program before its parent dies.  */

#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/gpu.h"

static pid_t
make_child (const char *how)
{
  if (!*how)
    return fork ();
  /* Without flags of its own and without a stack it is a fork.  */
  return (pid_t) syscall (SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

int
main (int argc, char **argv)
{
  CUdeviceptr held;
  int before_exec[2];
  char byte;
  if (argc < 2)
    return 2;
  const char *how = argc > 2 ? argv[2] : "";
  use_gpu (0);
  MUST (cuMemAlloc (&held, strtoull (argv[1], NULL, 10)));
  if (pipe2 (before_exec, O_CLOEXEC) != 0)
    return 1;
  pid_t child = make_child (how);
  if (child == 0)
    {
      /* Closed, so that the reader of our output sees the parent's end.  */
      close (STDOUT_FILENO);
      close (STDERR_FILENO);
      if (strcmp (how, "exec") == 0)
        execlp ("sleep", "sleep", "120", (char *) NULL);
      sleep (120);
      _exit (0);
    }
  close (before_exec[1]);
  if (child < 0 || (strcmp (how, "exec") == 0 && read (before_exec[0], &byte, 1) != 0))
    return 1;
  printf ("%d\n", (int) child);
  fflush (stdout);
  raise (SIGKILL);
}
