/* gated WHAT ...: calls functions of the driver mock_gate.c through the shim.

   all FILE        the functions that FILE names, one a line: as an export, and looked up. Prints
                   a line for each: name, how often its answer was right, counts of calls inside.
   nested          a callback that waits for a line on stdin calls once more
   exits, jumps    a callback ends its thread, or leaves the call by longjmp
   forks           a callback forks, and both go on; the child calls as well
   canceled        a second thread calls, and is cancelled when a line comes
   signalled N     N calls, while a signal every 20 us calls in its handler
   stays N FILE    N threads call, until stdin ends; FILE counts those in the driver
   once            one call, after a line on stdin
   Each prints the count of calls inside that its last call saw.  */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/await_line.h"
#include "mock/gate.h"

int cuInit (unsigned int flags);
int cuGetProcAddress_v2 (const char *symbol, void **pointer, int version, uint64_t flags,
                         int *status);

static gate_function *function;

static gate_function *
export_of (const char *name)
{
  return (gate_function *) dlsym (RTLD_DEFAULT, name);
}

static gate_function *
looked_up (const char *name)
{
  void *pointer = NULL;
  int status;
  cuGetProcAddress_v2 (name, &pointer, 13000, 0, &status);
  return (gate_function *) pointer;
}

/* Calls FUNCTION with other arguments each time; *RIGHT counts right answers. How many calls were
   inside.  */
static int
call (gate_function *called, int *right)
{
  static uint64_t seed;
  uint64_t a = ++seed % 1000, b = a + 1, c = a + 3, d = a + 5, e = a + 7, f = a + 9, g = a + 11,
           h = a + 13, i = a + 17;
  double p = 1.5 + (double) a, q = 2 * p, r = 3 * p, s = 4 * p, t = 5 * p, u = 6 * p, v = 7 * p,
         w = 8 * p;
  errno = 77;
  uint64_t answer = called (GATE_ARGUMENTS);
  *right += (answer & 0xffffffffffffull) == GATE_SUM && errno == 77;
  return (int) (answer >> GATE_COUNT_SHIFT);
}

static int
call_once (void)
{
  int right = 0, inside = call (function, &right);
  if (!right)
    abort ();
  return inside;
}

static void
call_back (void (*back) (void *), void *argument)
{
  function (CALL_BACK, (uint64_t) back, (uint64_t) argument, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0);
}

static int
all (const char *path)
{
  char name[128];
  FILE *names = fopen (path, "r");
  while (names && fscanf (names, "%127s", name) == 1)
    {
      int right = 0, inside[3] = { -1, -1, -1 };
      gate_function *exported = export_of (name), *found = looked_up (name);
      for (int i = 0; i < 2 && exported; i++) /* the first call resolves it */
        inside[i] = call (exported, &right);
      if (found)
        inside[2] = call (found, &right);
      printf ("%s %d %d %d %d\n", name, right, inside[0], inside[1], inside[2]);
    }
  return 0;
}

static void
wait_and_call (void *inside)
{
  await_line ();
  *(int *) inside = call_once ();
}

static void
end_thread (void *nothing)
{
  pthread_exit (nothing);
}

static jmp_buf before;

static void
leave (void *nothing)
{
  (void) nothing;
  longjmp (before, 1);
}

static void *
call_that_exits (void *nothing)
{
  call_back (end_thread, nothing);
  return NULL;
}

static void
fork_here (void *child)
{
  *(pid_t *) child = fork ();
}

/* One after the other, because the driver counts the calls of both.  */
static int
forks (void)
{
  pid_t child = -1;
  int pipes[2], status;
  char byte = 0;
  if (pipe (pipes))
    return -1;
  call_back (fork_here, &child);
  if (child == 0)
    _exit (read (pipes[0], &byte, 1) == 1 ? call_once () : 99);
  if (write (pipes[1], &byte, 1) != 1 || waitpid (child, &status, 0) != child)
    return -1;
  printf ("%d ", WEXITSTATUS (status));
  return call_once ();
}

static void *
call_cancellable (void *nothing)
{
  pthread_setcanceltype (PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  for (;;)
    call_once ();
  return nothing;
}

static int
canceled (void)
{
  pthread_t thread;
  void *result;
  pthread_create (&thread, NULL, call_cancellable, NULL);
  await_line ();
  pthread_cancel (thread);
  pthread_join (thread, &result);
  printf ("%d\n", result == PTHREAD_CANCELED);
  await_line ();
  return call_once ();
}

static volatile sig_atomic_t signals, most;

static void
on_signal (int number)
{
  (void) number;
  int saved = errno, inside = call_once ();
  signals++;
  if (inside > most)
    most = inside;
  errno = saved;
}

static int
signalled (long calls)
{
  struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
  struct itimerval often = { { 0, 20 }, { 0, 20 } }, never = { { 0, 0 }, { 0, 0 } };
  sigaction (SIGALRM, &action, NULL);
  setitimer (ITIMER_REAL, &often, NULL);
  for (long i = 0; i < calls || signals < 1000; i++)
    function (1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8);
  setitimer (ITIMER_REAL, &never, NULL);
  printf ("%d ", (int) most);
  return call_once ();
}

static volatile int ended;

static void *
stay (void *path)
{
  while (!ended)
    function (STAY, (uint64_t) path, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  return NULL;
}

static int
stays (int count, char *path)
{
  pthread_t threads[count];
  for (int i = 0; i < count; i++)
    pthread_create (&threads[i], NULL, stay, path);
  await_line ();
  ended = 1;
  for (int i = 0; i < count; i++)
    pthread_join (threads[i], NULL);
  return call_once ();
}

int
main (int argc, char **argv)
{
  int inside = -1;
  const char *what = argc > 1 ? argv[1] : "";
  cuInit (0);
  function = export_of ("cuCtxGetFlags");
  if (!strcmp (what, "all"))
    return all (argv[2]);
  if (!strcmp (what, "nested"))
    call_back (wait_and_call, &inside);
  else if (!strcmp (what, "exits"))
    {
      pthread_t thread;
      pthread_create (&thread, NULL, call_that_exits, NULL);
      pthread_join (thread, NULL);
      inside = call_once ();
    }
  else if (!strcmp (what, "jumps"))
    {
      if (!setjmp (before))
        call_back (leave, NULL);
      inside = call_once ();
    }
  else if (!strcmp (what, "forks"))
    inside = forks ();
  else if (!strcmp (what, "canceled"))
    inside = canceled ();
  else if (!strcmp (what, "signalled"))
    inside = signalled (atol (argv[2]));
  else if (!strcmp (what, "stays"))
    inside = stays (atoi (argv[2]), argv[3]);
  else if (!strcmp (what, "once"))
    wait_and_call (&inside);
  printf ("%d\n", inside);
  return 0;
}
