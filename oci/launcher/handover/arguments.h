/* What the launcher reads of a command line for runc or crun.  */

#pragma once

#include <limits.h>
#include <stdbool.h>

/* Options before the verb; NULL where one is missing. has_others: there is one more, which may
   change what the runtime does or prints.  */
struct global_options
{
  const char *root, *log, *format;
  bool has_others;
};

/* Reads the global options; returns the words after them, at the verb if there is one.  */
char **read_global_options (char **words, struct global_options *options);

/* Whether this command line creates a container; `path` gets its config.json.  */
bool creates_from (char **words, char path[PATH_MAX]);

/* The id of the container that this command line deletes; "": none.  */
const char *deleted_container (char **words);
