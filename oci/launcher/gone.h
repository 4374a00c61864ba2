/* The shim of containerd says `delete --force` at the end of each container, when a `delete` has
   gone well before: the runtime starts, finds no folder of that name below its root, and ends with
   0 without a word. Where that is all that it could find, it need not start: a short container's
   life is a twentieth shorter for that, a pod's ends twice in it.  */

#ifndef VCUDA_GONE_H
#define VCUDA_GONE_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "report.h"

/* What both runtimes take in a container's id.  */
#define ID "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+.-"

/* Of another runtime nobody knows here what else it does at a delete.  */
static bool
is_known_runtime (const char *path)
{
  const char *slash = strrchr (path, '/'), *name = slash ? slash + 1 : path;
  return strcmp (name, "runc") == 0 || strcmp (name, "crun") == 0;
}

/* Whether the command line deletes by force one container that RUNTIME does not know, and asks for
   nothing besides.  */
static bool
deletes_nobody (char **words, const char *runtime)
{
  struct global_options said = { 0 };
  struct stat there;
  char folder[PATH_MAX];
  words = read_global_options (words, &said);
  if (!is_known_runtime (runtime) || said.says_more || !said.root || said.root[0] != '/')
    return false;
  if (!words[0] || strcmp (words[0], "delete") != 0 || !words[1]
      || strcmp (words[1], "--force") != 0 || !words[2] || words[3])
    return false;
  const char *id = words[2];
  if (!*id || strchr (".-", *id) || id[strspn (id, ID)])
    return false;
  int length = snprintf (folder, PATH_MAX, "%s/%s", said.root, id);
  /* A root that is not there is the runtime's to make.  */
  return length < PATH_MAX && stat (said.root, &there) == 0 && lstat (folder, &there) != 0
         && errno == ENOENT;
}

#endif
