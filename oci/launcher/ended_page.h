/* Retires the usage page of an ended container, as oci/vcuda_oci/guest/ended_pages.py does: a page
   that a process still has moves to <state>/ended, a folder that root alone enters. There vcuda
   finds it and cuts it back until no process has it.  */

#ifndef VCUDA_ENDED_PAGE_H
#define VCUDA_ENDED_PAGE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Source: linux/fs.h, FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IMMUTABLE_FL. musl lacks the header.  */
#define GET_FLAGS _IOR ('f', 1, long)
#define SET_FLAGS _IOW ('f', 2, long)
#define IMMUTABLE 0x10

/* Whether no other process has the page: the kernel gives a write lease only on a file that is open
   once, and not where it is mapped or in transit over a socket. True too on a host without leases
   (EINVAL), where this is unknown.  */
static bool
is_open_once (int page)
{
  /* An open by another process signals the lease's holder; SIGURG does nothing by default.  */
  fcntl (page, F_SETSIG, SIGURG);
  if (fcntl (page, F_SETLEASE, F_WRLCK) != 0)
    return errno == EINVAL;
  fcntl (page, F_SETLEASE, F_UNLCK);
  return true;
}

/* Removes the page, or moves it to <state>/ended if a process still has it.  */
static void
retire_page (const char *state_dir, const char *page)
{
  char folder[PATH_MAX], name[PATH_MAX + 32];
  struct timespec now;
  struct stat status;
  int flags;
  if (lstat (page, &status) != 0 || !S_ISREG (status.st_mode))
    return;
  /* Two names: a replacement was killed after it had linked the page into <state>/ended.  */
  int fd = open (page, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  if (status.st_nlink > 1 || (fd >= 0 && is_open_once (fd)))
    {
      /* An O_PATH descriptor does not count as open: freeze, so none opens it for writing.  */
      if (unlink (page) == 0 && status.st_nlink == 1 && ioctl (fd, GET_FLAGS, &flags) == 0)
        {
          flags |= IMMUTABLE;
          ioctl (fd, SET_FLAGS, &flags);
        }
    }
  else
    {
      clock_gettime (CLOCK_REALTIME, &now);
      snprintf (folder, sizeof folder, "%s/ended", state_dir);
      snprintf (name, sizeof name, "%s/%llx", folder,
                (unsigned long long) now.tv_sec * 1000000000 + (unsigned long long) now.tv_nsec);
      if (rename (page, name) != 0 && errno == ENOENT && mkdir (folder, 0700) == 0)
        rename (page, name);
    }
  if (fd >= 0)
    close (fd);
}

#endif
