/* The text of a small file, read without an allocation.  */

#pragma once

#include <stdbool.h>
#include <stddef.h>

#define ROOM_BYTES 65536

/* The text of a file. is_whole: all of it was read.  */
struct file_text
{
  const char *text; /* ended by a NUL that is not counted */
  size_t size;
  bool is_whole;
};

/* Reads FD and closes it. The text lies in `room` if it fits there; it is empty if FD is not a
   regular file.  */
struct file_text read_open (int fd, char room[ROOM_BYTES]);
