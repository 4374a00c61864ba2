#include "option_value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

uint64_t
option_number (const char *option, const char *text, uint64_t least, uint64_t most)
{
  char *end;
  errno = 0;
  unsigned long long value = strtoull (text, &end, 10);
  if (errno || end == text || *end || *text == '-' || value < least || value > most)
    {
      char mend[100];
      snprintf (mend, sizeof mend, "give a whole number from %llu to %llu",
                (unsigned long long) least, (unsigned long long) most);
      fail (2, option, text, mend);
    }
  return value;
}

uint64_t
option_size (const char *option, const char *text, const char *per)
{
  static const struct
  {
    const char *unit;
    unsigned shift;
  } units[] = { { "", 0 }, { "KiB", 10 }, { "MiB", 20 }, { "GiB", 30 }, { "TiB", 40 } };
  char *end;
  errno = 0;
  unsigned long long value = strtoull (text, &end, 10);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (!errno && end != text && *text != '-' && value
        && strncmp (end, units[i].unit, strlen (units[i].unit)) == 0
        && strcmp (end + strlen (units[i].unit), per) == 0
        && value <= (1ull << 46) >> units[i].shift)
      return value << units[i].shift;
  fail (2, option, text,
        *per ? "give a rate such as 100GiB/s, at most 64TiB/s"
             : "give a size such as 16GiB, at most 64TiB");
}

uint64_t
option_time (const char *option, const char *text)
{
  static const struct
  {
    const char *unit;
    uint64_t ns;
  } units[] = { { "ns", 1 }, { "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 } };
  char *end;
  errno = 0;
  unsigned long long value = strtoull (text, &end, 10);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (!errno && end != text && *text != '-' && strcmp (end, units[i].unit) == 0
        && value <= 10000000000ull / units[i].ns && value * units[i].ns >= 1000)
      return value * units[i].ns;
  fail (2, option, text, "give a time such as 2ms, from 1us to 10s");
}
