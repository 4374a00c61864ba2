/* accident host|gpu|none: on the mock driver, an empty kernel of which one run is measured to take
   3 ms: the thread slept in its launch, or the GPU took them. Prints how many of the launches after
   that one are measured too.  */

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/gpu.h"
#include "mock/mock.h"

#define LAUNCHES 8000
#define MS 3

static unsigned records;
static struct mock_interruption now = { .records = &records };
static bool sleeps, due;

/* Between the two records of a measured launch their number is odd.  */
static void
in_launch (void)
{
  now.elapsed_ms = 0;
  if (!due || records % 2 == 0)
    return;
  due = false;
  if (sleeps)
    usleep (MS * 1000);
  now.elapsed_ms = MS;
}

static unsigned
measured_of (int launches)
{
  unsigned before = records;
  for (int i = 0; i < launches; i++)
    MUST (cuLaunchKernel ((CUfunction) 64, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, (void **) &now));
  return (records - before) / 2;
}

int
main (int argc, char **argv)
{
  if (argc != 2)
    return 2;
  now.function = in_launch;
  use_gpu (0);
  measured_of (1); /* from its end on records are counted */
  records = 0;
  measured_of (LAUNCHES);
  sleeps = !strcmp (argv[1], "host");
  due = strcmp (argv[1], "none") != 0;
  while (due)
    measured_of (1);
  printf ("%u\n", measured_of (LAUNCHES));
  return 0;
}
