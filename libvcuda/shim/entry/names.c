/* A hash table of base names, made at the first look-up. Most look-ups are for names that are
   passed on, so one probe must identify them.  */

#include "entry/names.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "entry/load.h"
#include "real.h"

#define ROOM 4096 /* a power of two, well above the entries */

_Static_assert (VCUDA_FIRST_NVML * 2 < ROOM, "the table must stay half empty");

struct name
{
  uint16_t entry; /* index + 1 of an entry with a name that begins here; 0 is free */
  uint8_t length;
  uint8_t hooked;
};

static const uint16_t hooked_entries[] = {
#define HOOKED(index, function) index,
  VCUDA_POLICIES (HOOKED)
};

static struct name *
place (struct name *table, const char *symbol, size_t length)
{
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < length; i++)
    hash = (hash ^ (unsigned char) symbol[i]) * 16777619u;
  for (uint32_t at = hash >> 20;; at = (at + 1) & (ROOM - 1))
    {
      struct name *name = &table[at];
      if (!name->entry
          || (name->length == length
              && !memcmp (vcuda_entry_name (name->entry - 1u), symbol, length)))
        return name;
    }
}

static void
add (struct name *table, unsigned index, uint8_t hooked)
{
  const char *text = vcuda_entry_name (index);
  size_t length = strcspn (text, "_");
  struct name *name = place (table, text, length);
  if (!name->entry || hooked)
    *name = (struct name){ (uint16_t) (index + 1), (uint8_t) length, hooked };
}

static struct name *
names (void)
{
  static struct name *made;
  struct name *table = __atomic_load_n (&made, __ATOMIC_ACQUIRE);
  if (table)
    return table;
  int saved = errno;
  table = calloc (ROOM, sizeof *table);
  for (unsigned i = 0; table && i < VCUDA_FIRST_NVML; i++)
    add (table, i, 0);
  for (size_t i = 0; table && i < sizeof hooked_entries / sizeof *hooked_entries; i++)
    add (table, hooked_entries[i], 1);
  struct name *expected = NULL;
  if (table
      && !__atomic_compare_exchange_n (&made, &expected, table, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE))
    {
      free (table); /* another thread was first */
      table = expected;
    }
  errno = saved;
  return table;
}

enum vcuda_name
vcuda_name_of (const char *symbol)
{
  struct name *table = names ();
  size_t length = strlen (symbol);
  if (!table)
    return VCUDA_NAME_HOOKED; /* no memory: check by pointer and name as well */
  const struct name *name = place (table, symbol, length);
  if (!name->entry)
    return VCUDA_NAME_NEWER;
  return name->hooked ? VCUDA_NAME_HOOKED : VCUDA_NAME_PASSED;
}
