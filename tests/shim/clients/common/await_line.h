/* Says "ready" and waits for a line: the test does something meanwhile.  */

#pragma once

#include <stdio.h>
#include <unistd.h>

static inline void
await_line (void)
{
  char byte;
  printf ("ready\n");
  fflush (stdout);
  while (read (STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
    continue;
}
