/* Options of runc and crun that take the next word as their value. Source: runc 1.1 and crun 1.8
   --help. oci/vcuda_oci/container/bundle.py has the same lists; a test compares them.  */

#ifndef VCUDA_ARGUMENTS_H
#define VCUDA_ARGUMENTS_H

#include <string.h>

static const char *const global_values[]
    = { "log", "log-format", "log-level", "root", "criu", "rootless", "cgroup-manager", NULL };

static const char *const create_values[]
    = { "bundle",   "console-socket", "pid-file",    "preserve-fds",      "config",
        "f",        "image-path",     "work-path",   "parent-path",       "manage-cgroups-mode",
        "empty-ns", "status-fd",      "lsm-profile", "lsm-mount-context", "page-server",
        NULL };

/* The option of `with_value` that `word` is or abbreviates, as crun takes --bundl; else NULL.
 *value: what follows its '=', or NULL.  */
static inline const char *
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

#endif
