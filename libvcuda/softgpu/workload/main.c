/* vcuda-workload: small jobs for a GPU, each of which prints one line of JSON. It needs a C library
   and, at run time, libcuda.so.1: the software GPU's, the shim's, or a real one.  */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload/busy.h"
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

static void __attribute__ ((noreturn))
refuse (const char *option, const char *value, const char *hint)
{
  fprintf (stderr, "vcuda-workload: %s: invalid value '%s'; %s\n", option, value, hint);
  exit (2);
}

static uint64_t
size (const char *option, const char *text)
{
  static const char *const units[] = { "", "KiB", "MiB", "GiB", "TiB" };
  char *end;
  errno = 0;
  unsigned long long value = strtoull (text, &end, 10);
  for (unsigned i = 0; i < 5; i++)
    if (!errno && end != text && *text != '-' && strcmp (end, units[i]) == 0
        && value <= UINT64_MAX >> 10 * i)
      return value << 10 * i;
  refuse (option, text, "give bytes, or a size such as 64MiB");
}

static double
seconds (const char *option, const char *text)
{
  char *end;
  double value = strtod (text, &end);
  if (end == text || *end || !(value >= 0 && value < 1e9))
    refuse (option, text, "give seconds, such as 2.5");
  return value;
}

static uint64_t
number (const char *option, const char *text, uint64_t least, uint64_t most)
{
  char *end;
  errno = 0;
  unsigned long long value = strtoull (text, &end, 10);
  if (errno || end == text || *end || *text == '-' || value < least || value > most)
    refuse (option, text, "give a whole number");
  return value;
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

int
main (int argc, char **argv)
{
  static const struct option options[] = {
    { "chunk", required_argument, NULL, 'c' },
    { "hold", required_argument, NULL, 'h' },
    { "bytes", required_argument, NULL, 'b' },
    { "seconds", required_argument, NULL, 's' },
    { "kernel-us", required_argument, NULL, 'k' },
    { "async", required_argument, NULL, 'a' },
    { "streams", required_argument, NULL, 'S' },
    { "graph", required_argument, NULL, 'G' },
    { "blocks", required_argument, NULL, 'B' },
    { "copy", required_argument, NULL, 'C' },
    { "first-us", required_argument, NULL, 'f' },
    { "gap-us", required_argument, NULL, 'g' },
    { "every-ms", required_argument, NULL, 'e' },
    { "threads", required_argument, NULL, 't' },
    { "allocate", required_argument, NULL, 'm' },
    { "kernels", required_argument, NULL, 'K' },
    { "cells", required_argument, NULL, 'n' },
    { "wait-file", required_argument, NULL, 'w' },
    { "device", required_argument, NULL, 'd' },
    { "help", no_argument, NULL, '?' },
    { NULL, 0, NULL, 0 },
  };
  struct busy busy = { .seconds = 1, .kernel_us = 1000, .threads = 1, .cell_kernels = 1 };
  uint64_t chunk = 64 << 20, bytes = 0;
  double hold_s = 0;
  for (int option; (option = getopt_long (argc, argv, "", options, NULL)) != -1;)
    switch (option)
      {
      case 'c':
        chunk = size ("--chunk", optarg);
        if (!chunk)
          refuse ("--chunk", optarg, "give a size such as 64MiB");
        break;
      case 'h':
        hold_s = seconds ("--hold", optarg);
        break;
      case 'b':
        bytes = size ("--bytes", optarg);
        break;
      case 's':
        busy.seconds = seconds ("--seconds", optarg);
        break;
      case 'k':
        busy.kernel_us = number ("--kernel-us", optarg, 0, 1000000000);
        break;
      case 'a':
        busy.depth = (unsigned) number ("--async", optarg, 0, MOST_IN_FLIGHT);
        break;
      case 'S':
        busy.streams = (unsigned) number ("--streams", optarg, 0, MOST_STREAMS);
        break;
      case 'G':
        busy.kernels = (unsigned) number ("--graph", optarg, 0, 100000);
        break;
      case 'B':
        busy.blocks = (unsigned) number ("--blocks", optarg, 0, INT32_MAX);
        break;
      case 'C':
        busy.copy_bytes = size ("--copy", optarg);
        break;
      case 'f':
        busy.first_us = number ("--first-us", optarg, 0, 1000000000);
        break;
      case 'g':
        busy.gap_us = number ("--gap-us", optarg, 0, 1000000000);
        break;
      case 'e':
        busy.every_ms = number ("--every-ms", optarg, 1, 1000000000);
        break;
      case 't':
        busy.threads = (unsigned) number ("--threads", optarg, 1, MOST_THREADS);
        break;
      case 'm':
        busy.bytes = size ("--allocate", optarg);
        break;
      case 'K':
        busy.cell_kernels = (unsigned) number ("--kernels", optarg, 1, 1000000);
        break;
      case 'n':
        busy.cells = (unsigned) number ("--cells", optarg, 1, 1000000);
        break;
      case 'w':
        busy.wait_file = optarg;
        break;
      case 'd':
        busy.ordinal = (int) number ("--device", optarg, 0, 1024);
        break;
      default:
        fputs (help, stderr);
        return 2;
      }
  const char *command = optind < argc ? argv[optind] : "";
  if (strcmp (command, "open") == 0 && optind + 2 == argc)
    return try_open (argv[optind + 1]);
  if (strcmp (command, "checkpoint") == 0 && optind + 2 < argc)
    {
      int pid = (int) number ("checkpoint", argv[optind + 1], 1, INT32_MAX);
      start_driver ();
      return checkpoint (pid, argv + optind + 2);
    }
  if (optind + 1 != argc
      || (strcmp (command, "info") != 0 && strcmp (command, "alloc") != 0
          && strcmp (command, "hold") != 0 && strcmp (command, "busy") != 0
          && strcmp (command, "notebook") != 0))
    {
      fputs (help, stderr);
      return 2;
    }
  start_driver ();
  if (strcmp (command, "info") == 0)
    return say_info ();
  if (strcmp (command, "alloc") == 0)
    return allocate_all (busy.ordinal, chunk, hold_s);
  if (strcmp (command, "hold") == 0)
    return hold (busy.ordinal, bytes, busy.seconds);
  if (strcmp (command, "notebook") == 0)
    {
      busy.bytes = bytes;
      return keep_notebook (&busy);
    }
  return keep_busy (&busy);
}
