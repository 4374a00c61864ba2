/* Reads the settings that the native programs need from config.toml. Python reads the whole file
   (oci/vcuda_oci/system/settings_file.py) and reports mistakes.  */

#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "settings/settings.h"

#define MOST_BYTES (64 << 20)

/* Reads the TOML string at the start of `text`. False: there is none, it is empty, or it is too
   long for a path.  */
static bool
string_value (const char *text, char value[PATH_MAX])
{
  static const char letters[] = "\"\\ntrbf", meant[] = "\"\\\n\t\r\b\f";
  char quote = *text++;
  size_t length = 0;
  if (quote != '"' && quote != '\'')
    return false;
  for (; *text && *text != '\n' && *text != quote && length < PATH_MAX - 1; text++)
    {
      const char *escape = NULL;
      if (quote == '"' && *text == '\\' && (!*++text || !(escape = strchr (letters, *text))))
        return false;
      value[length++] = escape ? meant[escape - letters] : *text;
    }
  value[length] = '\0';
  return *text == quote && length;
}

const char *
setting (const struct file_text *config, const char *key, const char *otherwise,
         char value[PATH_MAX])
{
  size_t length = strlen (key);
  const char *line = config->text, *end = line + config->size;
  while (line < end)
    {
      const char *at = line + strspn (line, " \t"), *stop = memchr (line, '\n', end - line);
      if (strncmp (at, key, length) == 0)
        {
          at += length + strspn (at + length, " \t");
          if (*at == '=' && string_value (at + 1 + strspn (at + 1, " \t"), value))
            return value;
        }
      line = stop ? stop + 1 : end;
    }
  return otherwise;
}

/* Whether FD, the file PATH, can hold settings. oci/vcuda_oci/system/files.py makes the same
   checks.  */
static bool
can_hold_settings (const char *path, int fd, struct distrust *why)
{
  struct stat status;
  if (fstat (fd, &status) != 0)
    return unreadable (why, path);
  if (!S_ISREG (status.st_mode)) /* a FIFO would read as empty */
    return not_regular (why, path);
  errno = EFBIG;
  return status.st_size <= MOST_BYTES || unreadable (why, path);
}

const struct file_text *
settings_at (const char *path, struct distrust *why)
{
  static char room[ROOM_BYTES];
  static struct file_text config = { "", 0, true };
  int fd = open_trusted (path, why);
  if (fd < 0)
    return *why->line ? NULL : &config;
  if (!can_hold_settings (path, fd, why))
    {
      close (fd);
      return NULL;
    }
  errno = EIO; /* reported if the read ends early */
  config = read_open (fd, room);
  if (!config.is_whole)
    unreadable (why, path);
  return config.is_whole ? &config : NULL;
}
