/* modules ROUNDS SEED CUBIN...: random calls that load and unload modules and libraries, look into
   them, and change limits, in contexts of both GPUs that are created and destroyed, with forks with
   children that do the same. Ends after ROUNDS; with 0 it goes on until SIGUSR1, prints "still" and
   waits. A call may be refused for lack of memory; any other error fails.  */

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/gpu.h"

#define CONTEXTS 5 /* the last two are the GPUs' primary ones */
#define GPUS 2
#define PIECES 12

static CUcontext context[CONTEXTS];
static struct
{
  CUmodule module;
  int in; /* which context */
} modules[PIECES];
static CUlibrary libraries[PIECES];
static char *images[PIECES];
static char **paths;
static int image_count;
static volatile sig_atomic_t asked;

static const char ptx[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                          ".visible .global .align 8 .b8 buffer[5000];\n"
                          ".visible .global .align 8 .b8 other[3000];\n";

static void
on_signal (int number)
{
  asked = number;
}

static bool
had_room (CUresult rc)
{
  if (rc != CUDA_ERROR_OUT_OF_MEMORY)
    MUST (rc);
  return rc == CUDA_SUCCESS;
}

static char *
contents (const char *path)
{
  FILE *file = fopen (path, "rb");
  char *image = malloc (1 << 20);
  if (!file || !fread (image, 1, 1 << 20, file))
    exit (1);
  fclose (file);
  return image;
}

/* Makes a random context current, or with OR_NONE perhaps none. Returns its index, or -1.  */
static int
go_somewhere (bool or_none)
{
  int at = rand () % (CONTEXTS + or_none);
  if (at == CONTEXTS || !context[at])
    at = or_none ? -1 : 0;
  MUST (cuCtxSetCurrent (at < 0 ? NULL : context[at]));
  return at;
}

static void
lose_modules_in (int at)
{
  for (int i = 0; i < PIECES; i++)
    if (modules[i].module && modules[i].in == at)
      modules[i].module = NULL;
}

static void
load_module (int i)
{
  int image = rand () % image_count;
  int at = go_somewhere (false);
  size_t bytes;
  CUresult rc;
  modules[i].in = at;
  switch (rand () % 4)
    {
    case 0:
      rc = cuModuleLoad (&modules[i].module, paths[image]);
      break;
    case 1:
      rc = cuModuleLoadDataEx (&modules[i].module, images[image], 0, NULL, NULL);
      break;
    case 2:
      rc = cuModuleLoadData (&modules[i].module, images[image]);
      break;
    default:
      MUST (cuModuleLoadData (&modules[i].module, ptx));
      for (int times = 0; times < 2; times++)
        {
          MUST (cuModuleGetGlobal (NULL, &bytes, modules[i].module, "buffer"));
          MUST (cuModuleGetGlobal (NULL, &bytes, modules[i].module, "other"));
        }
      return;
    }
  if (!had_room (rc))
    modules[i].module = NULL;
}

static void
load_library (int i)
{
  int image = rand () % image_count;
  go_somewhere (true);
  CUresult rc;
  if (rand () % 2)
    rc = cuLibraryLoadData (&libraries[i], images[image], NULL, NULL, 0, NULL, NULL, 0);
  else
    rc = cuLibraryLoadFromFile (&libraries[i], paths[image], NULL, NULL, 0, NULL, NULL, 0);
  if (!had_room (rc))
    libraries[i] = NULL;
}

static void
look_into (CUlibrary library)
{
  CUmodule module;
  CUkernel kernel;
  CUfunction function;
  CUdeviceptr start;
  go_somewhere (false);
  switch (rand () % 3)
    {
    case 0:
      had_room (cuLibraryGetModule (&module, library));
      break;
    case 1:
      had_room (cuLibraryGetGlobal (&start, NULL, library, ".nv.global"));
      break;
    default:
      MUST (cuLibraryGetKernel (&kernel, library, "work"));
      had_room (cuKernelGetFunction (&function, kernel));
    }
}

static void
set_limit (void)
{
  static const CUlimit limits[]
      = { CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE };
  int which = rand () % 3;
  go_somewhere (false);
  had_room (cuCtxSetLimit (limits[which], (size_t) rand () % (which ? 200 << 20 : 3000)));
}

/* CUDA cannot be used in a forked child: its calls must not change what the parent holds.  */
static void
meddle (void)
{
  for (int i = 0; i < PIECES; i++)
    {
      if (modules[i].module)
        cuModuleUnload (modules[i].module);
      if (libraries[i])
        cuLibraryUnload (libraries[i]);
    }
  cuCtxSetLimit (CU_LIMIT_MALLOC_HEAP_SIZE, 64 << 20);
  _exit (0);
}

static void
fork_one (void)
{
  pid_t child = fork ();
  if (child == 0)
    meddle ();
  int status;
  while (waitpid (child, &status, 0) < 0)
    continue;
  if (status)
    exit (1);
}

/* The first context stays.  */
static void
end_or_begin (void)
{
  int at = 1 + rand () % (CONTEXTS - 1);
  int primary = at - (CONTEXTS - GPUS);
  if (primary >= 0)
    {
      MUST (cuDevicePrimaryCtxReset (primary));
      lose_modules_in (at);
    }
  else if (context[at])
    {
      MUST (cuCtxDestroy (context[at]));
      context[at] = NULL;
      lose_modules_in (at);
    }
  else
    MUST (cuCtxCreate (&context[at], NULL, 0, at % GPUS));
}

static void
one_call (void)
{
  int i = rand () % PIECES;
  switch (rand () % 16)
    {
    case 0:
      end_or_begin ();
      break;
    case 1:
      set_limit ();
      break;
    case 2 ... 6:
      if (!libraries[i])
        load_library (i);
      else if (rand () % 3)
        look_into (libraries[i]);
      else
        {
          MUST (cuLibraryUnload (libraries[i]));
          libraries[i] = NULL;
        }
      break;
    case 7:
      if (rand () % 16 == 0)
        fork_one ();
      break;
    default:
      go_somewhere (false);
      if (!modules[i].module)
        load_module (i);
      else
        {
          MUST (cuModuleUnload (modules[i].module));
          modules[i].module = NULL;
        }
    }
}

int
main (int argc, char **argv)
{
  if (argc < 4)
    return 2;
  long rounds = atol (argv[1]);
  srand ((unsigned) atoi (argv[2]));
  signal (SIGUSR1, on_signal);
  paths = argv + 3;
  for (image_count = 0; image_count < argc - 3 && image_count < PIECES; image_count++)
    images[image_count] = contents (paths[image_count]);
  MUST (cuInit (0));
  MUST (cuCtxCreate (&context[0], NULL, 0, 0));
  for (int device = 0; device < GPUS; device++)
    MUST (cuDevicePrimaryCtxRetain (&context[CONTEXTS - GPUS + device], device));
  if (write (STDOUT_FILENO, "ready\n", 6) < 0)
    return 1;
  for (long round = 0; !asked && (!rounds || round < rounds); round++)
    one_call ();
  if (write (STDOUT_FILENO, "still\n", 6) < 0)
    return 1;
  while (!rounds)
    pause ();
  return 0;
}
