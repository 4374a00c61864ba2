/* crowd PROCESSES BYTES: so many processes start at once, each allocates a piece and holds it.
   Prints the moments of the first start and of the last answer, and how many got which answer; they
   end when standard input does.

   crowd PROCESSES BYTES worn: at most eight at a time, and each ends as soon as it has its piece,
   every third by SIGKILL.  */

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/gpu.h"

#define MOST_ANSWERS 1000
#define AT_A_TIME 8

static int answers[2], gate[2];

/* Runs in a process of its own.  */
static void
be_one (const char *bytes, int answer_to, int wait_for)
{
  CUdeviceptr piece;
  char nothing;
  use_gpu (0);
  int rc = (int) cuMemAlloc (&piece, strtoull (bytes, NULL, 10));
  if (write (answer_to, &rc, sizeof rc) != sizeof rc || read (wait_for, &nothing, 1) < 0)
    exit (1);
}

static void
start_one (const char *program, const char *bytes)
{
  char ends[2][12];
  snprintf (ends[0], sizeof ends[0], "%d", answers[1]);
  snprintf (ends[1], sizeof ends[1], "%d", gate[0]);
  if (fork () == 0)
    {
      close (gate[1]);
      execl (program, program, "one", bytes, ends[0], ends[1], NULL);
      _exit (127);
    }
}

/* A child of a process that has never called CUDA may.  */
static void
start_to_end (const char *bytes, int killed)
{
  if (fork () == 0)
    {
      be_one (bytes, answers[1], gate[0]);
      if (killed)
        raise (SIGKILL);
      _exit (0);
    }
}

static double
now (void)
{
  struct timespec moment;
  clock_gettime (CLOCK_MONOTONIC, &moment);
  return (double) moment.tv_sec + (double) moment.tv_nsec / 1e9;
}

int
main (int argc, char **argv)
{
  if (argc == 5 && !strcmp (argv[1], "one"))
    return be_one (argv[2], atoi (argv[3]), atoi (argv[4])), 0;
  int worn = argc == 4 && !strcmp (argv[3], "worn");
  if ((argc != 3 && !worn) || pipe (answers) || pipe (gate))
    return 2;
  int count = atoi (argv[1]), ended = 0, badly = 0, counts[MOST_ANSWERS] = { 0 };
  if (worn)
    close (gate[1]);
  double began = now ();
  for (int started = 0, answered = 0; answered < count; answered++)
    {
      for (; started < count && (!worn || started - ended < AT_A_TIME); started++)
        if (worn)
          start_to_end (argv[2], started % 3 == 0);
        else
          start_one ("/proc/self/exe", argv[2]);
      int rc;
      if (read (answers[0], &rc, sizeof rc) != sizeof rc)
        return 1;
      counts[rc]++;
      if (worn && wait (NULL) > 0)
        ended++;
    }
  printf ("{\"began\": %.6f, \"ended\": %.6f, \"answers\": {", began, now ());
  const char *comma = "";
  for (int i = 0; i < MOST_ANSWERS; i++)
    if (counts[i])
      {
        printf ("%s\"%d\": %d", comma, i, counts[i]);
        comma = ", ";
      }
  printf ("}");
  fflush (stdout);
  char nothing;
  while (!worn && read (STDIN_FILENO, &nothing, 1) > 0)
    continue;
  if (!worn)
    close (gate[1]);
  for (int status; wait (&status) > 0;)
    badly += !worn && status != 0;
  printf (", \"ended badly\": %d}\n", badly);
  return 0;
}
