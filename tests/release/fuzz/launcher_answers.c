/* Reads inputs from stdin, each after its size in four bytes, and writes the parsers' answers to
   stdout in the same form, to be compared with Python's.  */

#include "launcher_parsers.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int
main (void)
{
  static char out[MOST_ANSWER];
  uint32_t size;
  while (fread (&size, sizeof size, 1, stdin) == 1)
    {
      char *input = malloc (size + !size);
      if (fread (input, 1, size, stdin) != size)
        return 1;
      uint32_t length = (uint32_t) answer (input, size, out);
      fwrite (&length, sizeof length, 1, stdout);
      fwrite (out, 1, length, stdout);
      fflush (stdout);
      free (input);
    }
  return 0;
}
