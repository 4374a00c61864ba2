/* Reads the command lines of runc and crun.  */

#define _GNU_SOURCE
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "handover/arguments.h"

/* Options that take the next word as their value. Source: runc 1.1 and crun 1.8 --help.
   oci/vcuda_oci/container/bundle.py has the same lists; a test compares them.  */
static const char *const global_values[]
    = { "log", "log-format", "log-level", "root", "criu", "rootless", "cgroup-manager", NULL };

static const char *const create_values[]
    = { "bundle",   "console-socket", "pid-file",    "preserve-fds",      "config",
        "f",        "image-path",     "work-path",   "parent-path",       "manage-cgroups-mode",
        "empty-ns", "status-fd",      "lsm-profile", "lsm-mount-context", "page-server",
        NULL };

/* Returns the option of `with_value` that `word` is or abbreviates (crun accepts --bundl); NULL:
   none. *value gets the text after '='; NULL: there is no '='.  */
static const char *
option_name (const char *word, const char *const *with_value, const char **value)
{
  const char *name = word + strspn (word, "-");
  size_t length = strcspn (name, "=");
  const char *abbreviated = NULL;
  *value = name[length] == '=' ? name + length + 1 : NULL;
  for (; length && *with_value; with_value++)
    if (strncmp (name, *with_value, length) == 0)
      {
        if ((*with_value)[length] == '\0')
          return *with_value;
        if (!abbreviated)
          abbreviated = *with_value;
      }
  return abbreviated;
}

/* The same for letters after a single dash: crun accepts -db DIR and -bDIR.  */
static const char *
letter_option (const char *word, const char **value)
{
  if (word[1] == '-')
    return NULL;
  const char *letter = word + 1 + strspn (word + 1, "d");
  *value = *letter && letter[1] ? letter + 1 : NULL;
  return *letter == 'b' ? "bundle" : *letter == 'f' ? "f" : NULL;
}

char **
read_global_options (char **words, struct global_options *options)
{
  for (; *words && words[0][0] == '-' && words[0][1]; words++)
    {
      const char *value, *name = option_name (*words, global_values, &value);
      if (strcmp (*words, "--") == 0)
        return words + 1;
      if (name && !value && words[1])
        value = *++words;
      if (name && strcmp (name, "log") == 0)
        options->log = value ? value : "";
      else if (name && strcmp (name, "log-format") == 0)
        options->format = value ? value : "";
      else if (name && strcmp (name, "root") == 0)
        options->root = value ? value : "";
      else if (name || strcmp (*words, "--systemd-cgroup") != 0)
        options->has_others = true;
    }
  return words;
}

bool
creates_from (char **words, char path[PATH_MAX])
{
  const char *folder = ".", *file = "config.json", *name, *value;
  struct global_options options = { 0 };
  words = read_global_options (words, &options);
  const char *verb = *words;
  if (!verb || (strcmp (verb, "create") && strcmp (verb, "run") && strcmp (verb, "restore")))
    return false;
  while (*++words && strcmp (*words, "--") != 0)
    {
      if (words[0][0] != '-' || !words[0][1])
        continue;
      name = option_name (*words, create_values, &value);
      if (!name)
        name = letter_option (*words, &value);
      if (!name)
        continue;
      if (!value && words[1])
        value = *++words;
      if (strcmp (name, "bundle") == 0)
        folder = value && *value ? value : ".";
      else if (strcmp (name, "config") == 0 || strcmp (name, "f") == 0)
        file = value ? value : "";
    }
  /* crun looks for a file of another name in its working directory, not in the bundle.  */
  if (strcmp (file, "config.json") != 0)
    return snprintf (path, PATH_MAX, "%s", file) < PATH_MAX;
  return snprintf (path, PATH_MAX, "%s/%s", folder, file) < PATH_MAX;
}

const char *
deleted_container (char **words)
{
  struct global_options options = { 0 };
  words = read_global_options (words, &options);
  if (!*words || strcmp (*words, "delete") != 0)
    return "";
  while (*++words && words[0][0] == '-' && strcmp (*words, "--") != 0)
    continue;
  if (*words && strcmp (*words, "--") == 0)
    words++;
  return *words ? *words : "";
}
