/* Reads a small file with one call of read. Most starts pass through here, and each page and each
   system call counts.  */

#define _GNU_SOURCE
#include "small_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads FD and closes it. The text lies in `room` if it fits there; it is empty if FD is not a
   regular file.  */
struct file_text
read_open (int fd, char room[ROOM_BYTES])
{
  struct file_text file = { "", 0, true };
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
