/* Which futex word an address is: the same number in every process that maps it.

   A word in shared memory is its file's device and inode and its place there; another one is its
   process and address. What a page is, is read from /proc/self/maps once, and again after the
   process has mapped shared memory: `mmap` stands in place of the C library's.  */

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock/owner.h"
#include "clock/raw_call.h"
#include "clock/slots.h"

#define PAGE 4096ull
#define KNOWN 64

/* Only the clock's owner reads and writes it.  */
static struct
{
  uintptr_t page;
  uint64_t number;
} known[KNOWN];
static unsigned known_count;
static _Atomic bool shared_was_mapped;

/* Each bit of the answer depends on each of VALUE.  */
static uint64_t
mixed (uint64_t value)
{
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

/* The number of PAGE if LINE of /proc/self/maps is a shared mapping that holds it, else 0.  */
static uint64_t
number_in (const char *line, uintptr_t page)
{
  unsigned long long first, end, offset, inode;
  unsigned major, minor;
  char kind;
  if (sscanf (line, "%llx-%llx %*3c%c %llx %x:%x %llu", &first, &end, &kind, &offset, &major,
              &minor, &inode)
          != 7
      || kind != 's' || page < first || page >= end)
    return 0;
  uint64_t device = (uint64_t) major << 32 | minor;
  return mixed (mixed (mixed (inode) + device) + offset + page - first);
}

/* Takes no memory from `malloc`: a signal handler may wake a futex.  */
static uint64_t
number_of_page (uintptr_t page)
{
  char read[4096], line[128]; /* the numbers are in a line's beginning */
  long maps = SOFTCLOCK_RAW (SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
  if (maps < 0)
    softclock_fail ("cannot open /proc/self/maps");
  uint64_t found = 0;
  size_t length = 0;
  long got;
  while (!found && (got = SOFTCLOCK_RAW (SYS_read, maps, read, sizeof read, 0)) > 0)
    for (long i = 0; !found && i < got; i++)
      if (read[i] == '\n')
        {
          line[length] = '\0';
          length = 0;
          found = number_in (line, page);
        }
      else if (length < sizeof line - 1)
        line[length++] = read[i];
  SOFTCLOCK_RAW (SYS_close, maps, 0, 0, 0);
  return found ? found : mixed (mixed ((uint64_t) getpid () + 1) + page);
}

uint64_t
softclock_word (uintptr_t address)
{
  uintptr_t page = address & ~(PAGE - 1);
  if (atomic_exchange (&shared_was_mapped, false) || known_count == KNOWN)
    known_count = 0;
  unsigned at = 0;
  while (at < known_count && known[at].page != page)
    at++;
  if (at == known_count)
    {
      known[at].page = page;
      known[at].number = number_of_page (page);
      known_count++;
    }
  return known[at].number + (address - page);
}

EXPORT void *
mmap (void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
  void *map = (void *) softclock_answer (
      softclock_raw_call (SYS_mmap, (long) address, (long) length, protection, flags, fd, offset));
  if (map != MAP_FAILED && flags & MAP_SHARED)
    atomic_store (&shared_was_mapped, true);
  return map;
}

EXPORT void *mmap64 (void *, size_t, int, int, int, off_t) __attribute__ ((alias ("mmap")));
