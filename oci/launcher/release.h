/* Releases the share of a deleted container.  */

#ifndef VCUDA_RELEASE_H
#define VCUDA_RELEASE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

struct held
{
  const char *state_dir, *id;
  char record[PATH_MAX];
  struct stat seen; /* the record's file before the container was deleted */
  bool is_plain;    /* the record names this container and runtime: Python need not check it */
};

/* Whether there is a record of `held->id`, written by this user. Fills the rest of `held`.  */
bool find_record (struct held *held, const char *runtime, const char *root);

/* Releases the share. False: the lock could not be had, or another instance of the container has
   taken over the record.  */
bool release (const struct held *held);

#endif
