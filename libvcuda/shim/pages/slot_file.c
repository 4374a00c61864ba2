/* Opens the usage page's file, locks bytes of it, and reads when a process started.  */

#include "pages/slot_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "thread/in_driver.h"
#include "vcuda_abi.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int page_fd = -1;
static dev_t page_device;
static ino_t page_inode;

bool
vcuda_lock_byte (int fd, off_t byte, short type)
{
  struct flock range = { .l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
  return fcntl (fd, F_OFD_SETLK, &range) == 0;
}

off_t
vcuda_locked_byte (int fd, off_t first, off_t count)
{
  struct flock range
      = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = count };
  if (fcntl (fd, F_OFD_GETLK, &range) != 0 || range.l_type == F_UNLCK)
    return -1;
  return range.l_start > first ? range.l_start : first;
}

static bool
find_file (int fd, dev_t *device, ino_t *inode)
{
  struct stat found;
  /* The system call, because the symbol of the C library's fstat is newer than glibc 2.17.  */
  bool is_open = fd >= 0 && syscall (SYS_fstat, fd, &found) == 0;
  *device = is_open ? found.st_dev : 0;
  *inode = is_open ? found.st_ino : 0;
  return is_open;
}

/* Files of two file systems may have the same inode number.  */
static bool
is_page (int fd)
{
  dev_t device;
  ino_t inode;
  return find_file (fd, &device, &inode) && device == page_device && inode == page_inode;
}

static int
descriptor_locked (void)
{
  if (is_page (page_fd))
    return page_fd;
  int fd = open (VCUDA_GUEST_USAGE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return -1;
  /* A high number: programs may expect the next low one.  */
  int high = fcntl (fd, F_DUPFD_CLOEXEC, 512);
  if (high >= 0)
    {
      close (fd);
      fd = high;
    }
  page_fd = fd;
  find_file (fd, &page_device, &page_inode);
  return fd;
}

/* If two threads opened the file again, a descriptor and its locks would leak.  */
int
vcuda_usage_descriptor (void)
{
  vcuda_lock (&mutex);
  int fd = descriptor_locked ();
  vcuda_unlock (&mutex);
  return fd;
}

uint64_t
vcuda_start_time (int pid)
{
  char text[1024], path[32] = "/proc/self/stat";
  if (pid)
    snprintf (path, sizeof path, "/proc/%d/stat", pid);
  int fd = open (path, O_RDONLY | O_CLOEXEC);
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

void
vcuda_usage_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
  /* The child's copy of the descriptor would keep the parent's lock alive after the parent's death.
     The program may have closed it and opened its own file under that number, so compare the file
     first.  */
  if (is_page (page_fd))
    close (page_fd);
  page_fd = -1;
}
