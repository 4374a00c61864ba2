/* Small files, read whole without an allocation: each page and each call counts eleven times in a
   pod's life.  */

#ifndef VCUDA_WHOLE_H
#define VCUDA_WHOLE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOM_BYTES 65536

/* What a file held when it was read. is_whole: nothing of it is missing.  */
struct whole
{
  const char *text; /* ended by a NUL that is not counted */
  size_t size;
  bool is_whole;
};

/* What the file FD holds, in `room` if it fits there; empty where it is no regular file. Closes it.
 */
static struct whole
read_open (int fd, char room[ROOM_BYTES])
{
  struct whole file = { "", 0, true };
  struct stat status;
  if (fstat (fd, &status) == 0 && S_ISREG (status.st_mode) && status.st_size > 0)
    {
      size_t size = (size_t) status.st_size;
      char *text = size < ROOM_BYTES ? room : malloc (size + 1);
      /* One read gives 2 GiB at most.  */
      ssize_t got = text ? read (fd, text, size) : -1;
      file.is_whole = got == status.st_size;
      if (got > 0)
        {
          text[got] = '\0';
          file.text = text;
          file.size = (size_t) got;
        }
    }
  close (fd);
  return file;
}

#endif
