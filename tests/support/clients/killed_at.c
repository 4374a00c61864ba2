/* A library for LD_PRELOAD: the program PROGRAM is killed at the KILLED_AT-th of its calls that
   change a file or start a script. Where it gets to its end, the number of them is in COUNTED.  */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pid_t counted;
static long calls, last;

__attribute__ ((constructor)) static void
begin (void)
{
  const char *at = getenv ("KILLED_AT");
  if (at == NULL || strcmp (program_invocation_short_name, PROGRAM) != 0)
    return;
  counted = getpid ();
  last = atol (at);
}

__attribute__ ((destructor)) static void
end (void)
{
  int fd = counted == getpid () ? open (COUNTED, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
  if (fd < 0)
    return;
  dprintf (fd, "%ld", calls);
  close (fd);
}

static void
count (void)
{
  if (counted == getpid () && ++calls == last)
    raise (SIGKILL);
}

#define COUNTED_CALL(type, name, parameters, arguments)                                            \
  type name parameters                                                                             \
  {                                                                                                \
    count ();                                                                                      \
    return ((type (*) parameters) dlsym (RTLD_NEXT, #name)) arguments;                             \
  }

COUNTED_CALL (ssize_t, write, (int fd, const void *bytes, size_t size), (fd, bytes, size))
COUNTED_CALL (ssize_t, pwrite64, (int fd, const void *bytes, size_t size, off64_t at),
              (fd, bytes, size, at))
COUNTED_CALL (int, rename, (const char *from, const char *to), (from, to))
COUNTED_CALL (int, renameat, (int in, const char *from, int there, const char *to),
              (in, from, there, to))
COUNTED_CALL (int, link, (const char *from, const char *to), (from, to))
COUNTED_CALL (int, unlink, (const char *path), (path))
COUNTED_CALL (int, unlinkat, (int in, const char *path, int flags), (in, path, flags))
COUNTED_CALL (int, mkdir, (const char *path, mode_t mode), (path, mode))
COUNTED_CALL (int, mkdirat, (int in, const char *path, mode_t mode), (in, path, mode))
COUNTED_CALL (int, symlink, (const char *to, const char *path), (to, path))
COUNTED_CALL (int, symlinkat, (const char *to, int in, const char *path), (to, in, path))
COUNTED_CALL (pid_t, fork, (void), ())
