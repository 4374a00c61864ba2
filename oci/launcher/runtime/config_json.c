/* Searches the raw text of a config.json for words that a request contains. Python decides whether
   it is one.  */

#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/config_json.h"
#include "settings/small_file.h"

/* Reads the regular file at `path`; empty if it cannot be opened.  */
static struct file_text
read_whole (const char *path, char room[ROOM_BYTES])
{
  struct file_text none = { "", 0, true };
  struct stat status;
  /* Check the type before opening: opening a FIFO waits for a writer, or wakes one.  */
  if (stat (path, &status) != 0 || !S_ISREG (status.st_mode) || status.st_size == 0)
    return none;
  int fd = open (path, O_RDONLY | O_CLOEXEC);
  return fd < 0 ? none : read_open (fd, room);
}

/* Whether a letter or digit is written as \u00XX, which could hide a word. No engine does that.  */
static bool
hides_ascii (const char *text, size_t size)
{
  const char *end = text + size;
  while ((text = memmem (text, (size_t) (end - text), "\\u00", 4)) && text + 6 <= end)
    {
      char digits[3] = { text[4], text[5], 0 };
      int code = (int) strtol (digits, NULL, 16);
      if (isalnum (code) || code == '_')
        return true;
      text += 4;
    }
  return false;
}

bool
may_hold_request (const char *text, size_t size)
{
  static const char *const words[] = { "vcuda", "VCUDA", "NVIDIA_VISIBLE_DEVICES" };
  bool may = hides_ascii (text, size);
  for (size_t i = 0; i < sizeof words / sizeof *words && !may; i++)
    may = memmem (text, size, words[i], strlen (words[i])) != NULL;
  return may;
}

/* A missing file holds no request, and the runtime reports it. A file that could be read only in
   part may hold one.  */
bool
file_may_hold_request (const char *path)
{
  static char room[ROOM_BYTES];
  struct file_text config = read_whole (path, room);
  return !config.is_whole || may_hold_request (config.text, config.size);
}
