/* holder BYTES plain|managed|ipc: keeps so much GPU memory full of a pattern.

   `managed` has 4 KiB of managed memory beside it, `ipc` a memory handle that it has exported.
   Prints a line of JSON when it is ready, and one for each line that it reads: how long its first
   call took in milliseconds, and how many words of the pattern are wrong. A kernel ran by then.
   Ends with its standard input.  */

#include "work.h"

enum
{
  WORD_BYTES = sizeof (uint32_t),
  CHUNK_BYTES = 64 << 20,
  CHECKED_WORDS = 1024,
  OTHER_BYTES = 4096,
};

static CUdeviceptr *chunks;
static size_t chunk_count;

static uint32_t
word_of (size_t chunk)
{
  return (uint32_t) (chunk * 2654435761u + 1);
}

static void
fill (size_t bytes)
{
  chunk_count = bytes / CHUNK_BYTES;
  chunks = calloc (chunk_count, sizeof *chunks);
  if (!chunks && chunk_count)
    exit (1);
  for (size_t i = 0; i < chunk_count; i++)
    {
      MUST (cuMemAlloc (&chunks[i], CHUNK_BYTES));
      MUST (cuMemsetD32 (chunks[i], word_of (i), CHUNK_BYTES / WORD_BYTES));
    }
  MUST (cuCtxSynchronize ());
}

static void
make_special (const char *kind)
{
  CUdeviceptr other;
  CUipcMemHandle handle;
  if (strcmp (kind, "managed") == 0)
    MUST (cuMemAllocManaged (&other, OTHER_BYTES, CU_MEM_ATTACH_GLOBAL));
  if (strcmp (kind, "ipc") == 0)
    {
      MUST (cuMemAlloc (&other, OTHER_BYTES));
      MUST (cuIpcGetMemHandle (&handle, other));
    }
}

/* The first and the last words of each chunk.  */
static size_t
count_wrong (void)
{
  static uint32_t read[CHECKED_WORDS];
  size_t wrong = 0;
  for (size_t i = 0; i < chunk_count; i++)
    for (int end = 0; end < 2; end++)
      {
        CUdeviceptr from = chunks[i] + (end ? CHUNK_BYTES - sizeof read : 0);
        MUST (cuMemcpyDtoH (read, from, sizeof read));
        for (size_t word = 0; word < CHECKED_WORDS; word++)
          wrong += read[word] != word_of (i);
      }
  return wrong;
}

int
main (int argc, char **argv)
{
  if (argc != 3)
    {
      fputs ("usage: holder BYTES plain|managed|ipc\n", stderr);
      return 2;
    }
  steps = 1000;
  prepare (1);
  fill (strtoull (argv[1], NULL, 10));
  make_special (argv[2]);
  print_line ("{\"ready\": true}");

  char line[64];
  while (fgets (line, sizeof line, stdin))
    {
      double begin = now ();
      launch ();
      double took = now () - begin;
      MUST (cuStreamSynchronize (stream));
      printf ("{\"call_ms\": %.3f, \"wrong\": %zu}\n", took * 1e3, count_wrong ());
      fflush (stdout);
    }
  return 0;
}
