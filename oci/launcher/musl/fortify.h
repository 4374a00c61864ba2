/* Bounds checks for calls that write into a buffer, which glibc has as FORTIFY and musl does not.

   build.mk includes this file before each program. Where the compiler knows the size of a call's
   buffer, a length past it ends the program with SIGABRT before a byte is written.  */

#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#if __GNUC__ >= 12
#  define VCUDA_ROOM(buffer) __builtin_dynamic_object_size (buffer, 0)
#else
#  define VCUDA_ROOM(buffer) __builtin_object_size (buffer, 0)
#endif

/* LENGTH, where BUFFER has room for it. An unknown size is the largest there is.  */
#define VCUDA_FIT(buffer, length) vcuda_fit (VCUDA_ROOM (buffer), (length))

static inline size_t
vcuda_fit (size_t room, size_t length)
{
  if (length > room)
    abort ();
  return length;
}

#define memcpy(to, from, length) __builtin_memcpy (to, from, VCUDA_FIT (to, length))
#define memmove(to, from, length) __builtin_memmove (to, from, VCUDA_FIT (to, length))
#define memset(to, byte, length) __builtin_memset (to, byte, VCUDA_FIT (to, length))
#define strcpy(to, from) (VCUDA_FIT (to, strlen (from) + 1), __builtin_strcpy (to, from))
#define snprintf(to, length, ...) __builtin_snprintf (to, VCUDA_FIT (to, length), __VA_ARGS__)
#define vsnprintf(to, length, ...) __builtin_vsnprintf (to, VCUDA_FIT (to, length), __VA_ARGS__)
#define read(fd, to, length) (read) (fd, to, VCUDA_FIT (to, length))
#define pread(fd, to, length, at) (pread) (fd, to, VCUDA_FIT (to, length), at)
#define recv(fd, to, length, flags) (recv) (fd, to, VCUDA_FIT (to, length), flags)
#define fread(to, size, count, file)                                                               \
  (fread) (to, size, VCUDA_FIT (to, (size) * (count)) / (size), file)
#define getcwd(to, length) (getcwd) (to, VCUDA_FIT (to, length))
