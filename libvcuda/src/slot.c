/* A slot's life is an OFD lock on one byte of the page's file: the kernel drops it when the last
   copy of the descriptor goes, so it says who died without pids, namespaces or a watcher.  */

#include "slot.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "pages.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int page_fd = -1;
static ino_t page_inode;
static struct vcuda_usage_slot *own;
static uint32_t own_generation;
/* What this process holds, apart from the page: a program that closes every descriptor loses the
   lock, and then its slot to the next reclaim; it takes another one and enters this again.  */
static int64_t held_here[VCUDA_MAX_GPUS];
static uint64_t last_reclaim_ns;

static bool
lock_byte (int fd, off_t byte, short type)
{
  struct flock range = { .l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
  return fcntl (fd, F_OFD_SETLK, &range) == 0;
}

static ino_t
inode_of (int fd)
{
  struct stat found;
  /* The system call, because the C library's fstat has a newer symbol.  */
  return syscall (SYS_fstat, fd, &found) == 0 ? found.st_ino : 0;
}

static int
page_descriptor (void)
{
  if (page_fd >= 0 && inode_of (page_fd) == page_inode)
    return page_fd;
  int fd = open (VCUDA_GUEST_USAGE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return -1;
  /* Out of the way of programs that expect the next low number.  */
  int high = fcntl (fd, F_DUPFD_CLOEXEC, 512);
  if (high >= 0)
    {
      close (fd);
      fd = high;
    }
  page_fd = fd;
  page_inode = inode_of (fd);
  return fd;
}

static uint64_t
start_time (void)
{
  char text[1024];
  int fd = open ("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  ssize_t got = read (fd, text, sizeof text - 1);
  close (fd);
  if (got <= 0)
    return 0;
  text[got] = 0;
  /* The command's name may hold spaces; field 2 ends at the last parenthesis.  */
  char *at = strrchr (text, ')');
  for (int field = 2; at && field < 22; field++)
    at = strchr (at + 1, ' ');
  return at ? strtoull (at + 1, NULL, 10) : 0;
}

/* With the byte's lock held. What a kill leaves half cleared is cleared again by the next.  */
static void
clear_slot (struct vcuda_usage_slot *slot)
{
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    {
      __atomic_store_n (&slot->held_bytes[gpu], 0, __ATOMIC_SEQ_CST);
      __atomic_store_n (&slot->busy_ns[gpu], 0, __ATOMIC_RELAXED);
    }
  __atomic_store_n (&slot->asking, 0, __ATOMIC_SEQ_CST);
  __atomic_store_n (&slot->pid, 0, __ATOMIC_SEQ_CST);
}

static void
reclaim_locked (void)
{
  struct vcuda_usage *usage = vcuda_pages.usage;
  int fd = page_descriptor ();
  if (fd < 0)
    return;
  unsigned used = __atomic_load_n (&usage->slots_used, __ATOMIC_SEQ_CST);
  for (unsigned i = 0; i < used && i < VCUDA_MAX_PROCESSES; i++)
    {
      struct vcuda_usage_slot *slot = &usage->slot[i];
      if (slot == own || !__atomic_load_n (&slot->pid, __ATOMIC_SEQ_CST))
        continue;
      if (!lock_byte (fd, VCUDA_USAGE_LOCK_BASE + i, F_WRLCK))
        continue;
      clear_slot (slot);
      lock_byte (fd, VCUDA_USAGE_LOCK_BASE + i, F_UNLCK);
    }
}

static struct vcuda_usage_slot *
take_locked (void)
{
  struct vcuda_usage *usage = vcuda_pages.usage;
  own = NULL;
  reclaim_locked ();
  int fd = page_descriptor ();
  if (fd < 0)
    return NULL;
  for (unsigned i = 0; i < VCUDA_MAX_PROCESSES; i++)
    {
      struct vcuda_usage_slot *slot = &usage->slot[i];
      if (!lock_byte (fd, VCUDA_USAGE_LOCK_BASE + i, F_WRLCK))
        continue;
      clear_slot (slot);
      own_generation = __atomic_add_fetch (&slot->generation, 1, __ATOMIC_SEQ_CST);
      __atomic_store_n (&slot->start_time, start_time (), __ATOMIC_RELAXED);
      __atomic_store_n (&slot->pid, (uint32_t) getpid (), __ATOMIC_SEQ_CST);
      /* Before the first byte is held, or a sum could miss it.  */
      unsigned used = __atomic_load_n (&usage->slots_used, __ATOMIC_SEQ_CST);
      while (used < i + 1
             && !__atomic_compare_exchange_n (&usage->slots_used, &used, i + 1, false,
                                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        continue;
      for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
        __atomic_store_n (&slot->held_bytes[gpu],
                          (uint64_t) __atomic_load_n (&held_here[gpu], __ATOMIC_SEQ_CST),
                          __ATOMIC_SEQ_CST);
      __atomic_store_n (&own, slot, __ATOMIC_RELEASE);
      return slot;
    }
  return NULL;
}

struct vcuda_usage_slot *
vcuda_slot (void)
{
  struct vcuda_usage_slot *slot = __atomic_load_n (&own, __ATOMIC_ACQUIRE);
  if (slot && slot->pid && slot->generation == own_generation)
    return slot;
  int saved = errno;
  pthread_mutex_lock (&mutex);
  slot = own;
  if (!slot || !slot->pid || slot->generation != own_generation)
    slot = take_locked ();
  pthread_mutex_unlock (&mutex);
  errno = saved;
  return slot;
}

void
vcuda_slot_hold (struct vcuda_usage_slot *slot, int gpu, int64_t bytes)
{
  __atomic_fetch_add (&held_here[gpu], bytes, __ATOMIC_SEQ_CST);
  __atomic_fetch_add (&slot->held_bytes[gpu], (uint64_t) bytes, __ATOMIC_SEQ_CST);
}

uint64_t
vcuda_held_bytes (int gpu)
{
  struct vcuda_usage *usage = vcuda_pages.usage;
  unsigned used = __atomic_load_n (&usage->slots_used, __ATOMIC_SEQ_CST);
  uint64_t sum = 0;
  for (unsigned i = 0; i < used && i < VCUDA_MAX_PROCESSES; i++)
    sum += __atomic_load_n (&usage->slot[i].held_bytes[gpu], __ATOMIC_SEQ_CST);
  return sum;
}

void
vcuda_slots_reclaim (void)
{
  int saved = errno;
  pthread_mutex_lock (&mutex);
  reclaim_locked ();
  pthread_mutex_unlock (&mutex);
  errno = saved;
}

void
vcuda_slots_reclaim_sometimes (void)
{
  uint64_t now = vcuda_now ();
  uint64_t last = __atomic_load_n (&last_reclaim_ns, __ATOMIC_RELAXED);
  if (now - last >= 100000000ull
      && __atomic_compare_exchange_n (&last_reclaim_ns, &last, now, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED))
    vcuda_slots_reclaim ();
}

bool
vcuda_refuse_lock (uint64_t deadline_ns)
{
  uint64_t pause = 50000;
  while (!lock_byte (page_fd, VCUDA_USAGE_REFUSE_LOCK, F_WRLCK))
    {
      /* Its holder may be stopped; a kill frees it at once.  */
      if (vcuda_now () >= deadline_ns)
        return false;
      vcuda_sleep_ns (pause);
      pause = pause < 1000000 ? pause * 2 : pause;
    }
  return true;
}

void
vcuda_refuse_unlock (void)
{
  lock_byte (page_fd, VCUDA_USAGE_REFUSE_LOCK, F_UNLCK);
}

void
vcuda_slot_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
  /* Our copy of the descriptor would keep the parent's lock alive after its death. Only ours: the
     program may have closed it and opened its own file under that number.  */
  if (page_fd >= 0 && inode_of (page_fd) == page_inode)
    close (page_fd);
  page_fd = -1;
  own = NULL;
  memset (held_here, 0, sizeof held_here);
}
