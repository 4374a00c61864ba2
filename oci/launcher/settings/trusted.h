/* Opens settings files that no other user could have changed.  */

#pragma once

#include <limits.h>
#include <stdbool.h>

/* Why a file is not trusted, as an error line.  */
struct distrust
{
  char line[2 * PATH_MAX + 128];
  bool is_broken_link;
};

/* Both store a reason in WHY and return false: PATH is not a regular file; PATH cannot be read, for
   the reason in errno.  */
bool not_regular (struct distrust *why, const char *path);
bool unreadable (struct distrust *why, const char *path);

/* Opens the settings file PATH. -1: there is none, or WHY says why it must not be read.  */
int open_trusted (const char *path, struct distrust *why);
