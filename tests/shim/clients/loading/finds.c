/* finds NAMES: how a program may look functions up, for each export named in the file, one a line.
   Prints `way symbol version flags status names file`, where names are the exports that the
   answer is.  What the shim names must be one of those that the bare driver names.  */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "common/gpu.h"

#define MOST 2000

static char *names[MOST];
static void *exports[MOST];
static void *behind[MOST]; /* where the shim's export leads when it is `endbr64; jmp` */
static int count;

static void
read_names (const char *path, void *library)
{
  char line[256];
  FILE *file = fopen (path, "r");
  while (file && count < MOST && fgets (line, sizeof line, file))
    {
      line[strcspn (line, "\n")] = 0;
      unsigned char *code = dlsym (library, line);
      names[count] = strdup (line);
      exports[count] = code;
      int distance;
      if (code && code[4] == 0xe9)
        {
          memcpy (&distance, code + 5, sizeof distance);
          behind[count] = code + 9 + distance;
        }
      count++;
    }
  if (file)
    fclose (file);
}

/* Every export that POINTER is: a driver may give one function several names.  */
static void
say_names (void *pointer)
{
  Dl_info info;
  int said = 0;
  for (int i = 0; pointer && i < count; i++)
    if (exports[i] == pointer || behind[i] == pointer)
      printf ("%s%s", said++ ? "=" : "", names[i]);
  if (pointer && !said && dladdr (pointer, &info) && info.dli_saddr == pointer)
    said = printf ("%s", info.dli_sname);
  if (!said)
    printf ("%s", pointer ? "?" : "-");
}

static const char *
file_of (void *pointer)
{
  Dl_info here, there;
  if (!pointer || !dladdr ((void *) cuInit, &here) || !dladdr (pointer, &there))
    return "-";
  /* cuInit itself is the program's own stub or the public library's.  */
  void *public = dlsym (RTLD_NEXT, "cuInit");
  dladdr (public, &here);
  return here.dli_fbase == there.dli_fbase ? "public" : "driver";
}

static void
say (const char *way, const char *symbol, int version, int flags, int status, void *pointer)
{
  printf ("%s %s %d %d %d ", way, symbol, version, flags, status);
  say_names (pointer);
  printf (" %s\n", file_of (pointer));
}

int
main (int argc, char **argv)
{
  static const int versions[]
      = { 0, 2000, 3020, 4000, 6050, 7000, 11020, 12000, 12090, 13000, 13050, 99999 };
  if (argc != 2)
    return 2;
  void *library = dlopen ("libcuda.so.1", RTLD_NOW);
  if (!library)
    return 1;
  read_names (argv[1], library);
  for (int i = 0; i < count; i++)
    {
      say ("dlsym", names[i], 0, 0, 0, dlsym (library, names[i]));
      say ("next", names[i], 0, 0, 0, dlsym (RTLD_NEXT, names[i]));
      say ("default", names[i], 0, 0, 0, dlsym (RTLD_DEFAULT, names[i]));
      say ("dlvsym", names[i], 0, 0, 0, dlvsym (library, names[i], "libcuda.so.1"));
    }
  for (int i = 0; i < count; i++)
    for (int flags = 0; flags < 4; flags++)
      for (size_t v = 0; v < sizeof versions / sizeof *versions; v++)
        {
          void *pointer = NULL;
          CUdriverProcAddressQueryResult status = 9;
          int rc = (int) cuGetProcAddress_v2 (names[i], &pointer, versions[v], (unsigned) flags,
                                              &status);
          say ("proc", names[i], versions[v], flags, rc * 10 + (int) status, pointer);
        }
  return 0;
}
