/* cuGetProcAddress asks the driver, and maps the answer to the shim's function. So the driver's own
   rules for versions and per-thread streams apply.  */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "entry/gate.h"
#include "entry/load.h"
#include "pages/pages.h"
#include "pages/suspended.h"
#include "real.h"

/* By entry: the shim's function; NULL: passed on.  */
static void *const hooks[VCUDA_FIRST_NVML] = {
#define HOOK(index, function) [index] = (void *) function,
  VCUDA_POLICIES (HOOK)
};

#define BUCKETS 2048 /* a power of two */

_Static_assert (VCUDA_FIRST_NVML * 2 < BUCKETS, "the table must stay half empty");

/* An export of the driver's.  */
struct mapping
{
  void *driver;
  void *hook; /* NULL: passed on */
};

static unsigned
bucket_of (const void *pointer)
{
  return (unsigned) (((uintptr_t) pointer * 0x9e3779b97f4a7c15ull) >> 53) & (BUCKETS - 1);
}

static struct mapping *
build (void)
{
  struct mapping *table = calloc (BUCKETS, sizeof *table);
  for (unsigned i = 0; table && i < VCUDA_FIRST_NVML; i++)
    {
      void *driver = vcuda_driver_symbol (i);
      if (!driver)
        continue;
      unsigned at = bucket_of (driver);
      while (table[at].driver && table[at].driver != driver)
        at = (at + 1) & (BUCKETS - 1);
      /* If a driver exports one function under several names, the newest version's types are
         right.  */
      const char *suffix = table[at].hook && hooks[i] ? strrchr (vcuda_entry_name (i), '_') : NULL;
      if (!table[at].hook || (suffix && suffix[1] == 'v'))
        table[at] = (struct mapping){ driver, hooks[i] };
    }
  return table;
}

static const struct mapping *
mappings (void)
{
  static struct mapping *built;
  struct mapping *table = __atomic_load_n (&built, __ATOMIC_ACQUIRE);
  if (table)
    return table;
  int saved = errno;
  struct mapping *expected = NULL;
  table = build ();
  if (table
      && !__atomic_compare_exchange_n (&built, &expected, table, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE))
    {
      free (table); /* another thread was first */
      table = expected;
    }
  errno = saved;
  return table;
}

/* How well the name of entry INDEX matches a request for SYMBOL; 0: not at all.  */
static unsigned
rank (unsigned index, const char *symbol, cuuint64_t flags)
{
  const char *name = vcuda_entry_name (index);
  size_t length = strlen (symbol);
  if (strncmp (name, symbol, length))
    return 0;
  unsigned version = 1;
  bool per_thread = false;
  for (const char *suffix = name + length; *suffix;)
    {
      if (suffix[0] == '_' && suffix[1] == 'v' && suffix[2] >= '2' && suffix[2] <= '9')
        {
          version = (unsigned) (suffix[2] - '0');
          suffix += 3;
        }
      else if (!strcmp (suffix, "_ptsz") || !strcmp (suffix, "_ptds"))
        {
          per_thread = true;
          suffix += 5;
        }
      else
        return 0;
    }
  bool wanted = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  return version + (wanted == per_thread ? 16 : 0);
}

/* Matches by name, for a driver with an answer that is not its own export: passing it on would
   bypass the shim. Returns the newest version; for cuGetProcAddress the one that VERSION asks for.
   Counts a name that the shim's headers lack.  */
static void *
by_name (const char *symbol, int version, cuuint64_t flags)
{
  void *best = NULL;
  unsigned best_rank = 0;
  bool known = false;
  if (!strcmp (symbol, "cuGetProcAddress"))
    return version >= 12000 ? (void *) vcuda_cuGetProcAddress_v2 : (void *) vcuda_cuGetProcAddress;
  for (unsigned i = 0; i < VCUDA_FIRST_NVML; i++)
    {
      unsigned how_well = rank (i, symbol, flags);
      known |= how_well > 0;
      if (hooks[i] && how_well > best_rank)
        {
          best_rank = how_well;
          best = hooks[i];
        }
    }
  if (!known)
    __atomic_fetch_add (&vcuda_pages.usage->newer_symbols, 1, __ATOMIC_RELAXED);
  return best;
}

/* Whether POINTER is an export that need not ask.  */
static bool
is_unasked (const void *pointer)
{
#define IS_EXPORT(index) || vcuda_driver_symbol (index) == pointer
  return false VCUDA_UNASKED (IS_EXPORT);
}

static CUresult
hand_out (CUresult rc, const char *symbol, void **function, int version, cuuint64_t flags)
{
  if (rc != CUDA_SUCCESS || !function || !*function)
    return rc;
  const struct mapping *table = mappings ();
  if (!table)
    {
      *function = NULL; /* no memory: answer nothing rather than bypass the shim */
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  unsigned at = bucket_of (*function);
  while (table[at].driver && table[at].driver != *function)
    at = (at + 1) & (BUCKETS - 1);
  void *hook = table[at].driver ? table[at].hook : by_name (symbol, version, flags);
  if (hook)
    *function = hook;
  else if (vcuda_calls_ask () && !is_unasked (*function))
    *function = vcuda_gate_of_function (*function);
  return rc;
}

CUresult
vcuda_cuGetProcAddress (const char *symbol, void **function, int version, cuuint64_t flags)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = real.cuGetProcAddress (symbol, function, version, flags);
  return hand_out (rc, symbol, function, version, flags);
}

CUresult
vcuda_cuGetProcAddress_v2 (const char *symbol, void **function, int version, cuuint64_t flags,
                           CUdriverProcAddressQueryResult *status)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = real.cuGetProcAddress_v2 (symbol, function, version, flags, status);
  return hand_out (rc, symbol, function, version, flags);
}

/* The private tables are passed on: CUDA's own libraries don't work without them. The usage page
   records the last few that were handed out, in a ring.  */
CUresult
vcuda_cuGetExportTable (const void **table, const CUuuid *id)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = real.cuGetExportTable (table, id);
  if (rc == CUDA_SUCCESS && id)
    {
      struct vcuda_usage *usage = vcuda_pages.usage;
      uint32_t turn = __atomic_fetch_add (&usage->export_tables, 1, __ATOMIC_RELAXED);
      memcpy (usage->export_table_ids + turn % VCUDA_EXPORT_TABLE_IDS * sizeof *id, id, sizeof *id);
    }
  return rc;
}
