/* slept launch|wait: on the mock driver, a launch that is measured, or a wait behind many launches,
   lasts until a line comes.  */

#include <string.h>
#include <unistd.h>

#include "common/await_line.h"
#include "common/gpu.h"
#include "mock/mock.h"

static void
launch (const struct mock_interruption *extra)
{
  MUST (cuLaunchKernel ((CUfunction) 64, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, (void **) extra));
}

int
main (int argc, char **argv)
{
  if (argc != 2)
    return 2;
  bool in_wait = !strcmp (argv[1], "wait");
  struct mock_interruption now
      = { .function = await_line, .in_wait = in_wait, .elapsed_ms = in_wait ? 0.02f : 1000 };
  use_gpu (0);
  if (!in_wait) /* a new function is measured */
    launch (&now);
  for (int i = 0; in_wait && i < 1000; i++)
    launch (NULL);
  if (in_wait)
    launch (&now);
  MUST (cuCtxSynchronize ());
  return 0;
}
