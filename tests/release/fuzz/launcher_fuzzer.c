/* libFuzzer's entry point. The sanitizers report memory errors and undefined behaviour.  */

#include "launcher_parsers.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput (const uint8_t *input, size_t size);

int
LLVMFuzzerTestOneInput (const uint8_t *input, size_t size)
{
  static char out[MOST_ANSWER];
  answer ((const char *) input, size, out);
  return 0;
}
