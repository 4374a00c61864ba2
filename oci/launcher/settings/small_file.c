/* Reads a small file with one system call, because it is part of every start of a container.  */

#define _GNU_SOURCE
#include "settings/small_file.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_text
read_open (int fd, char room[ROOM_BYTES])
{
  struct file_text file = { "", 0, true };
  struct stat status;
  if (fstat (fd, &status) == 0 && S_ISREG (status.st_mode) && status.st_size > 0)
    {
      size_t size = (size_t) status.st_size;
      char *text = size < ROOM_BYTES ? room : malloc (size + 1);
      /* A single read returns at most 2 GiB.  */
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
