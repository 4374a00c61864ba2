/* Reads numbers from the fuzz input.  */

#include "fuzz.h"

const uint8_t *input;
size_t input_left;

uint64_t
take (unsigned bytes)
{
  uint64_t value = 0;
  for (; bytes && input_left; bytes--, input_left--)
    value = value << 8 | *input++;
  return value;
}

uint64_t
number (void)
{
  static const uint64_t odd[]
      = { 0,         1,          4096,           LIMIT - 1,          LIMIT,      LIMIT + 1,
          INT32_MAX, UINT32_MAX, INT64_MAX,      (uint64_t) 1 << 63, UINT64_MAX, UINT64_MAX - 4096,
          1000000,   ~0ull - 1,  0xffff0000ffff, (uint64_t) 1 << 62 };
  unsigned which = (unsigned) take (1);
  return which & 16 ? odd[which & 15] : take ((which & 7) + 1);
}
