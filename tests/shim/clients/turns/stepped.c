/* stepped steps|calls OTHERS LAUNCHES: what a launch takes of the processor, counted and not timed.
   OTHERS threads have launched before, and live.

   steps   each launch of the first thread is run an instruction at a time. Prints, in the order of
           the launches, [instructions, locked instructions, system calls] of each
   calls   every thread launches, and a system call of any of them kills the process. Prints how
   many launches there were  */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>

#define WARMING 1000
#define MOST_OTHERS 8
#define MARKER SYS_getppid

static CUresult (*launch) (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, CUstream, void **, void **);
static CUresult (*set_current) (CUcontext);
static CUcontext context;
static CUfunction function;
static bool forbidden;
static unsigned launches;
static int ready, begun, done;

static void
must (bool held, const char *what)
{
  if (held)
    return;
  fprintf (stderr, "stepped: %s\n", what);
  _exit (1);
}

static void *
find (void *library, const char *name)
{
  void *found = dlsym (library, name);
  must (found, name);
  return found;
}

static void
launch_once (void)
{
  if (launch (function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != CUDA_SUCCESS)
    must (false, "cuLaunchKernel");
}

static void
prepare (void)
{
  static const char text[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                             ".visible .entry nothing()\n{\n ret;\n}\n";
  void *library = dlopen ("libcuda.so.1", RTLD_NOW);
  must (library, "libcuda.so.1 is not found");
  CUresult (*init) (unsigned) = find (library, "cuInit");
  CUresult (*retain) (CUcontext *, CUdevice) = find (library, "cuDevicePrimaryCtxRetain");
  CUresult (*load) (CUmodule *, const void *) = find (library, "cuModuleLoadData");
  CUresult (*get) (CUfunction *, CUmodule, const char *) = find (library, "cuModuleGetFunction");
  CUmodule module;
  launch = find (library, "cuLaunchKernel");
  set_current = find (library, "cuCtxSetCurrent");
  must (!init (0) && !retain (&context, 0) && !set_current (context) && !load (&module, text)
            && !get (&function, module, "nothing"),
        "the driver refuses");
}

/* From here on the thread's only system calls may be a write and the end of the process.  */
static void
forbid_calls (void)
{
  struct sock_filter code[] = {
    BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offsetof (struct seccomp_data, nr)),
    BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
    BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
    BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = { .len = sizeof code / sizeof *code, .filter = code };
  must (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && prctl (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
        "no system call filter");
}

static void
launch_all (void)
{
  if (forbidden)
    forbid_calls ();
  __atomic_fetch_add (&ready, 1, __ATOMIC_SEQ_CST);
  while (!__atomic_load_n (&begun, __ATOMIC_SEQ_CST))
    ;
  for (unsigned i = 0; i < launches; i++)
    launch_once ();
  __atomic_fetch_add (&done, 1, __ATOMIC_SEQ_CST);
}

static void *
other (void *argument)
{
  must (!set_current (context), "cuCtxSetCurrent");
  for (int i = 0; i < WARMING; i++)
    launch_once ();
  if (forbidden)
    launch_all ();
  else
    __atomic_fetch_add (&ready, 1, __ATOMIC_SEQ_CST);
  while (forbidden) /* an end of the thread is a system call */
    ;
  pause ();
  return argument;
}

static void
start_others (int others)
{
  for (int i = 0; i < others; i++)
    {
      pthread_t thread;
      must (pthread_create (&thread, NULL, other, NULL) == 0, "no thread");
    }
  while (__atomic_load_n (&ready, __ATOMIC_SEQ_CST) < others)
    usleep (1000);
}

static int
run_without_calls (int others)
{
  char said[64];
  for (int i = 0; i < WARMING; i++)
    launch_once ();
  start_others (others);
  begun = 1;
  launch_all ();
  while (__atomic_load_n (&done, __ATOMIC_SEQ_CST) < others + 1)
    ;
  int length = snprintf (said, sizeof said, "%u\n", launches * (unsigned) (others + 1));
  must (write (STDOUT_FILENO, said, (size_t) length) == length, "cannot write");
  _exit (0);
}

static void
run_between_markers (int others)
{
  must (ptrace (PTRACE_TRACEME, 0, 0, 0) == 0, "cannot be traced");
  prepare ();
  for (int i = 0; i < WARMING; i++)
    launch_once ();
  start_others (others);
  raise (SIGSTOP);
  for (unsigned i = 0; i < launches; i++)
    {
      syscall (MARKER);
      launch_once ();
    }
  syscall (MARKER);
  _exit (0);
}

struct step
{
  bool locked, call;
};

/* Prefixes and the first byte of the code: of `xchg` with memory the processor locks the bus too.
 */
static struct step
step_at (const uint8_t *code)
{
  struct step step = { 0 };
  size_t at = 0;
  for (; at < 14 && (strchr ("\x66\x67\xf2\xf3\x2e\x36\x3e\x26\x64\x65\xf0", code[at]) && code[at]);
       at++)
    step.locked |= code[at] == 0xf0;
  at += (code[at] & 0xf0) == 0x40;
  step.locked |= (code[at] & 0xfe) == 0x86 && code[at + 1] < 0xc0;
  step.call = code[at] == 0x0f && code[at + 1] == 0x05;
  return step;
}

static int
count_steps (pid_t child)
{
  int status;
  unsigned seen = 0, count[3] = { 0 };
  struct user_regs_struct registers;
  must (waitpid (child, &status, 0) == child && WIFSTOPPED (status), "the child has ended");
  printf ("[");
  while (seen <= launches)
    {
      long words[2];
      must (ptrace (PTRACE_GETREGS, child, 0, &registers) == 0, "no registers");
      words[0] = ptrace (PTRACE_PEEKTEXT, child, registers.rip, 0);
      words[1] = ptrace (PTRACE_PEEKTEXT, child, registers.rip + 8, 0);
      struct step step = step_at ((const uint8_t *) words);
      if (step.call && registers.rax == MARKER)
        {
          if (seen)
            printf ("%s[%u, %u, %u]", seen > 1 ? ", " : "", count[0], count[1], count[2]);
          seen++;
          memset (count, 0, sizeof count);
        }
      count[0]++;
      count[1] += step.locked;
      count[2] += step.call && registers.rax != MARKER;
      must (ptrace (PTRACE_SINGLESTEP, child, 0, 0) == 0 && waitpid (child, &status, 0) == child
                && WIFSTOPPED (status),
            "the child has ended");
    }
  puts ("]");
  kill (child, SIGKILL);
  waitpid (child, &status, 0);
  return 0;
}

int
main (int argc, char **argv)
{
  int others = argc == 4 ? atoi (argv[2]) : MOST_OTHERS + 1;
  if (others > MOST_OTHERS)
    {
      fputs ("usage: stepped steps|calls OTHERS LAUNCHES\n", stderr);
      return 2;
    }
  launches = (unsigned) atoi (argv[3]);
  if (strcmp (argv[1], "calls") == 0)
    {
      forbidden = true;
      prepare ();
      return run_without_calls (others);
    }
  pid_t child = fork ();
  if (!child)
    run_between_markers (others);
  must (child > 0, "no child");
  return count_steps (child);
}
