/* copies SECONDS BYTES RATE AHEAD KERNEL_US FORM: makes the call FORM of BYTES again and again,
   AHEAD of them ahead (0: waits for each), with a kernel of KERNEL_US after each. RATE is the
   device's, in bytes a second. Prints the share of the GPU's time that was had, that time, and
   whether the bytes are right; without FORM, the names of all.  */

#include <string.h>
#include <time.h>

#include "compute/copy_forms.h"

#define MOST_AHEAD 256

enum kind
{
  COPY,
  COPY_TO_ARRAY,
  SET
};

#define CALL(name, arguments)                                                                      \
  static CUresult call_##name (CUstream stream)                                                    \
  {                                                                                                \
    (void) stream;                                                                                 \
    return name arguments;                                                                         \
  }
#define CALL_SET(name, arguments, bits) CALL (name, arguments)
FORMS (CALL, CALL, CALL_SET)

static const struct form
{
  const char *name;
  CUresult (*call) (CUstream);
  enum kind kind;
  unsigned bits;
} forms[] = {
#define FORM_C(name, arguments) { #name, call_##name, COPY, 8 },
#define FORM_A(name, arguments) { #name, call_##name, COPY_TO_ARRAY, 8 },
#define FORM_S(name, arguments, bits) { #name, call_##name, SET, bits },
  FORMS (FORM_C, FORM_A, FORM_S)
};

static double
now (void)
{
  struct timespec moment;
  clock_gettime (CLOCK_MONOTONIC, &moment);
  return (double) moment.tv_sec + (double) moment.tv_nsec / 1e9;
}

static CUfunction
load_kernel (void)
{
  static const char image[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                              "//softgpu entry=spin time_ns=param:0\n"
                              ".visible .entry spin(.param .u64 nanoseconds)\n{\n ret;\n}\n";
  CUmodule module;
  CUfunction spin;
  MUST (cuModuleLoadData (&module, image));
  MUST (cuModuleGetFunction (&spin, module, "spin"));
  return spin;
}

/* `from` and `from_array` hold a pattern, what is written to holds zeroes.  */
static unsigned char *
make_memory (void)
{
  const CUDA_ARRAY_DESCRIPTOR shape
      = { .Width = bytes / ELEMENT, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 4 };
  unsigned char *pattern = malloc (bytes);
  for (size_t i = 0; i < bytes; i++)
    pattern[i] = (unsigned char) (i * 7 + i / 256 + 1);
  MUST (cuMemAlloc_v2 (&to, bytes));
  MUST (cuMemAlloc_v2 (&from, bytes));
  MUST (cuMemcpyHtoD_v2 (from, pattern, bytes));
  MUST (cuMemcpyHtoD_v2 (to, calloc (bytes, 1), bytes));
  for (int i = 0; i < PIECES; i++)
    {
      to_pieces[i] = to + (CUdeviceptr) i * (bytes / PIECES);
      from_pieces[i] = from + (CUdeviceptr) i * (bytes / PIECES);
      piece_bytes[i] = bytes / PIECES;
    }
  if (bytes > 65536 * ELEMENT)
    return pattern; /* more than an array's row holds */
  MUST (cuArrayCreate_v2 (&to_array, &shape));
  MUST (cuArrayCreate_v2 (&from_array, &shape));
  MUST (cuMemcpyHtoA_v2 (from_array, 0, pattern, bytes));
  return pattern;
}

static int
is_right (const struct form *form, const unsigned char *pattern)
{
  unsigned char *found = malloc (bytes);
  if (form->kind == COPY_TO_ARRAY)
    MUST (cuMemcpyAtoH_v2 (found, to_array, 0, bytes));
  else
    MUST (cuMemcpyDtoH_v2 (found, to, bytes));
  if (form->kind != SET)
    return !memcmp (found, pattern, bytes);
  for (size_t i = 0; i < bytes; i++)
    if (found[i] != (i % (form->bits / 8) ? 0 : VALUE))
      return 0;
  return 1;
}

int
main (int argc, char **argv)
{
  const struct form *form = forms;
  if (argc == 1)
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
      puts (forms[i].name);
  if (argc != 7)
    return argc != 1;
  double seconds = atof (argv[1]), rate = atof (argv[3]);
  bytes = strtoull (argv[2], NULL, 10);
  unsigned ahead = (unsigned) atoi (argv[4]);
  uint64_t kernel_ns = strtoull (argv[5], NULL, 10) * 1000;
  while (form < forms + sizeof forms / sizeof *forms && strcmp (form->name, argv[6]))
    form++;
  if (form == forms + sizeof forms / sizeof *forms || ahead > MOST_AHEAD)
    return 2;
  context = use_gpu (0);
  unsigned char *pattern = make_memory ();
  CUfunction spin = kernel_ns ? load_kernel () : NULL;
  CUstream stream;
  CUevent event[MOST_AHEAD];
  MUST (cuStreamCreate (&stream, CU_STREAM_NON_BLOCKING));
  for (unsigned i = 0; i < ahead; i++)
    MUST (cuEventCreate (&event[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  double step = (double) bytes / rate + (double) kernel_ns / 1e9;
  double begin = now (), moment = begin;
  unsigned number = 0, done = 0;
  for (; moment < begin + seconds; number++, moment = now ())
    {
      void *parameters[] = { &kernel_ns };
      MUST (form->call (stream));
      if (spin)
        MUST (cuLaunchKernel (spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
      if (!ahead)
        MUST (cuCtxSynchronize ());
      else
        {
          MUST (cuEventRecord (event[number % ahead], NULL));
          if (number + 1 >= ahead)
            MUST (cuEventSynchronize (event[(number + 1) % ahead]));
        }
      done += !ahead || number + 1 >= ahead;
    }
  double wall = moment - begin;
  MUST (cuCtxSynchronize ());
  printf ("{\"share\": %.5f, \"gpu_seconds\": %.5f, \"right\": %s}\n", done * step / wall,
          number * step, is_right (form, pattern) ? "true" : "false");
  return 0;
}
