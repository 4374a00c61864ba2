/* Parses the numbers, sizes and times of softgpu's options.  */

#include "create/option_value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "create/files.h"

/* A size below it and without a unit is taken for a forgotten one.  */
#define LEAST_BYTES (16ull << 20)

uint64_t
option_number (const char *option, const char *text, uint64_t least, uint64_t most)
{
  char *end;
  errno = 0;
  unsigned long long value = strtoull (text, &end, 10);
  if (errno || end == text || *end || *text == '-' || value < least || value > most)
    {
      char hint[100];
      snprintf (hint, sizeof hint, "give a whole number from %llu to %llu",
                (unsigned long long) least, (unsigned long long) most);
      fail (2, option, text, hint);
    }
  return value;
}

/* The decimal that `text` begins with, times `unit`, rounded down, and where it ends; 0: it is
   none, or more than `most`.  */
static uint64_t
scaled (const char *text, uint64_t unit, uint64_t most, const char **end)
{
  size_t whole = strspn (text, "0123456789"), part = 0;
  *end = text + whole;
  if (**end == '.' && unit > 1)
    {
      part = strspn (*end + 1, "0123456789");
      *end += part ? 1 + part : 0;
    }
  if (!whole || whole + part > 18)
    return 0;
  unsigned __int128 value = strtoull (text, NULL, 10);
  uint64_t tenths = 1;
  for (size_t i = 0; i < part; i++, tenths *= 10)
    value = value * 10 + (unsigned) (text[whole + 1 + i] - '0');
  value = value * unit / tenths;
  return value <= most ? (uint64_t) value : 0;
}

uint64_t
option_size (const char *option, const char *text, const char *per)
{
  static const struct
  {
    const char *unit;
    unsigned shift;
  } units[] = { { "", 0 },     { "KiB", 10 }, { "Ki", 10 },  { "MiB", 20 }, { "Mi", 20 },
                { "GiB", 30 }, { "Gi", 30 },  { "TiB", 40 }, { "Ti", 40 } };
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    {
      const char *end;
      uint64_t value = scaled (text, 1ull << units[i].shift, 1ull << 46, &end);
      size_t length = strlen (units[i].unit);
      if (!value || strncmp (end, units[i].unit, length) != 0 || strcmp (end + length, per) != 0)
        continue;
      if (!*per && !length && value < LEAST_BYTES)
        {
          char guess[100];
          snprintf (guess, sizeof guess, "did you mean %sMiB?", text);
          fail (2, option, text, guess);
        }
      return value;
    }
  fail (2, option, text,
        *per ? "give a rate such as 100GiB/s, at most 64TiB/s"
             : "give a size such as 16GiB, at most 64TiB");
}

uint64_t
option_time (const char *option, const char *text, uint64_t least)
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
        && value <= 10000000000ull / units[i].ns && value * units[i].ns >= least)
      return value * units[i].ns;
  char hint[100];
  snprintf (hint, sizeof hint, "give a time such as 2ms, from %lluus to 10s",
            (unsigned long long) least / 1000);
  fail (2, option, text, hint);
}

unsigned
option_word (const char *option, const char *text, const char *const words[])
{
  char hint[100] = "give ";
  for (unsigned i = 0; words[i]; i++)
    {
      if (strcmp (text, words[i]) == 0)
        return i;
      size_t used = strlen (hint);
      snprintf (hint + used, sizeof hint - used, "%s%s",
                i == 0         ? ""
                : words[i + 1] ? ", "
                               : " or ",
                words[i]);
    }
  fail (2, option, text, hint);
}
