/* What the native programs need of config.toml. Python reads the whole file
   (oci/vcuda_oci/config.py) and names mistakes.  */

#ifndef VCUDA_SETTINGS_H
#define VCUDA_SETTINGS_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_STATE_DIR "/run/vcuda"

/* The TOML string that `text` begins with; false: none, or an empty one, or too long for a path. */
static bool
string_value (const char *text, char value[PATH_MAX])
{
  static const char letters[] = "\"\\ntrbf", meant[] = "\"\\\n\t\r\b\f";
  char quote = *text++;
  size_t length = 0;
  if (quote != '"' && quote != '\'')
    return false;
  for (; *text && *text != quote && length < PATH_MAX - 1; text++)
    {
      const char *escape = NULL;
      if (quote == '"' && *text == '\\' && (!*++text || !(escape = strchr (letters, *text))))
        return false;
      value[length++] = escape ? meant[escape - letters] : *text;
    }
  value[length] = '\0';
  return *text == quote && length;
}

/* The value of `key = "…"` in the settings, or `otherwise`. A line of any other form is left to
   Python, which reads the whole file and names mistakes.  */
static const char *
setting (FILE *file, const char *key, const char *otherwise, char value[PATH_MAX])
{
  char *line = NULL;
  size_t room = 0, length = strlen (key);
  bool found = false;
  while (!found && getline (&line, &room, file) > 0)
    {
      const char *at = line + strspn (line, " \t");
      if (strncmp (at, key, length) != 0)
        continue;
      at += length + strspn (at + length, " \t");
      found = *at == '=' && string_value (at + 1 + strspn (at + 1, " \t"), value);
    }
  free (line);
  return found ? value : otherwise;
}

/* The same of the file at `path`.  */
static const char *
configured (const char *path, const char *key, const char *otherwise, char value[PATH_MAX])
{
  FILE *file = fopen (path, "re");
  if (!file)
    return otherwise;
  const char *found = setting (file, key, otherwise, value);
  fclose (file);
  return found;
}

#endif
