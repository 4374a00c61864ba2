/* vcuda-workload: small jobs for a GPU, each of which prints one line of JSON. It needs a C library
   and, at run time, libcuda.so.1: the software GPU's, the shim's, or a real one.  */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include "workload/workload.h"

static const char help[]
    = "usage: vcuda-workload info\n"
      "       vcuda-workload alloc [--chunk 64MiB] [--hold SECONDS] [--device I]\n"
      "       vcuda-workload hold --bytes SIZE --seconds S [--device I]\n"
      "       vcuda-workload notebook --bytes SIZE --seconds S --every-ms M [--kernel-us U]\n"
      "                           [--kernels N] [--cells N] [--device I]\n"
      "       vcuda-workload busy --seconds S --kernel-us U [--async DEPTH] [--streams N]\n"
      "                           [--graph KERNELS] [--blocks N] [--copy SIZE] [--first-us U]\n"
      "                           [--gap-us U] [--every-ms M] [--threads N] [--allocate SIZE]\n"
      "                           [--wait-file PATH] [--device I]\n"
      "       vcuda-workload checkpoint PID STEP...\n"
      "       vcuda-workload open PATH\n";

static struct options given
    = { .chunk = 64 << 20, .seconds = 1, .kernel_us = 1000, .threads = 1, .cell_kernels = 1 };

/* An option, and where its value goes: of BYTES and NUMBER a uint64_t from LEAST to MOST, of
   SECONDS a double, of TEXT a string.  */
static const struct setting
{
  const char *name;
  enum
  {
    BYTES,
    NUMBER,
    SECONDS,
    TEXT,
  } kind;
  void *value;
  uint64_t least, most;
} settings[] = {
  { "--chunk", BYTES, &given.chunk, 1, UINT64_MAX },
  { "--bytes", BYTES, &given.bytes, 0, UINT64_MAX },
  { "--allocate", BYTES, &given.bytes, 0, UINT64_MAX },
  { "--copy", BYTES, &given.copy_bytes, 0, UINT64_MAX },
  { "--kernel-us", NUMBER, &given.kernel_us, 0, 1000000000 },
  { "--async", NUMBER, &given.depth, 0, MOST_IN_FLIGHT },
  { "--streams", NUMBER, &given.streams, 0, MOST_STREAMS },
  { "--graph", NUMBER, &given.kernels, 0, 100000 },
  { "--blocks", NUMBER, &given.blocks, 0, INT32_MAX },
  { "--first-us", NUMBER, &given.first_us, 0, 1000000000 },
  { "--gap-us", NUMBER, &given.gap_us, 0, 1000000000 },
  { "--every-ms", NUMBER, &given.every_ms, 1, 1000000000 },
  { "--threads", NUMBER, &given.threads, 1, MOST_THREADS },
  { "--kernels", NUMBER, &given.cell_kernels, 1, 1000000 },
  { "--cells", NUMBER, &given.cells, 1, 1000000 },
  { "--device", NUMBER, &given.ordinal, 0, 1024 },
  { "--hold", SECONDS, &given.hold_s, 0, 0 },
  { "--seconds", SECONDS, &given.seconds, 0, 0 },
  { "--wait-file", TEXT, &given.wait_file, 0, 0 },
};

enum
{
  SETTINGS = sizeof settings / sizeof *settings
};

static const struct command
{
  const char *name;
  int (*run) (const struct options *options);
} commands[] = {
  { "info", print_info },        { "alloc", allocate_all }, { "hold", hold },
  { "notebook", keep_notebook }, { "busy", keep_busy },
};

static void __attribute__ ((noreturn))
refuse (const char *option, const char *value, const char *hint)
{
  FAIL (2, "%s: invalid value '%s'; %s\n", option, value, hint);
}

static uint64_t
whole_number (const struct setting *setting, const char *text)
{
  static const char *const units[] = { "", "KiB", "MiB", "GiB", "TiB" };
  char *end;
  errno = 0;
  unsigned long long value = strtoull (text, &end, 10);
  for (unsigned i = 0; i < (setting->kind == BYTES ? 5 : 1); i++)
    if (!errno && end != text && *text != '-' && strcmp (end, units[i]) == 0
        && value <= setting->most >> 10 * i && value << 10 * i >= setting->least)
      return value << 10 * i;
  refuse (setting->name, text,
          setting->kind == BYTES ? "give bytes, or a size such as 64MiB" : "give a whole number");
}

static double
seconds (const struct setting *setting, const char *text)
{
  char *end;
  double value = strtod (text, &end);
  if (end == text || *end || !(value >= 0 && value < 1e9))
    refuse (setting->name, text, "give seconds, such as 2.5");
  return value;
}

static void
set (const struct setting *setting, const char *text)
{
  if (setting->kind == TEXT)
    *(const char **) setting->value = text;
  else if (setting->kind == SECONDS)
    *(double *) setting->value = seconds (setting, text);
  else
    *(uint64_t *) setting->value = whole_number (setting, text);
}

static int
try_open (const char *path)
{
  int fd = open (path, O_RDWR | O_CLOEXEC);
  const char *name = fd >= 0 ? "OK" : strerrorname_np (errno);
  printf ("{\"path\": \"%s\", \"errno\": \"%s\"}\n", path, name ? name : "?");
  if (fd >= 0)
    close (fd);
  return 0;
}

static int
usage (void)
{
  fputs (help, stderr);
  return 2;
}

int
main (int argc, char **argv)
{
  struct option options[SETTINGS + 2] = { { 0 } };
  for (int i = 0; i < SETTINGS; i++)
    options[i] = (struct option){ settings[i].name + strlen ("--"), required_argument, NULL, i };
  options[SETTINGS] = (struct option){ "help", no_argument, NULL, SETTINGS };
  for (int option; (option = getopt_long (argc, argv, "", options, NULL)) != -1;)
    if (option < SETTINGS)
      set (&settings[option], optarg);
    else
      return usage ();
  const char *name = optind < argc ? argv[optind] : "";
  if (strcmp (name, "open") == 0 && optind + 2 == argc)
    return try_open (argv[optind + 1]);
  if (strcmp (name, "checkpoint") == 0 && optind + 2 < argc)
    {
      const struct setting pid = { .name = name, .kind = NUMBER, .least = 1, .most = INT32_MAX };
      int process = (int) whole_number (&pid, argv[optind + 1]);
      start_driver ();
      return checkpoint (process, argv + optind + 2);
    }
  for (size_t i = 0; optind + 1 == argc && i < sizeof commands / sizeof *commands; i++)
    if (strcmp (name, commands[i].name) == 0)
      {
        start_driver ();
        return commands[i].run (&given);
      }
  return usage ();
}
