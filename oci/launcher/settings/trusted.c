/* Checks whether another user could have changed a settings file.
   oci/vcuda_oci/system/trusted_file.py explains the rules and applies the same ones: a test
   compares the two.  */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "settings/trusted.h"

#define MOST_LINKS 16
#define LINK_TRIES 10 /* a ConfigMap can be updated between two steps of one walk */
#define OPEN_AS_IT_IS (O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
#define USER_WITHOUT_NUMBER 65534 /* DEFAULT_OVERFLOWUID of linux/highuid.h */

static bool
distrusted (struct distrust *why, const char *where, const char *what, const char *hint,
            const char *place)
{
  snprintf (why->line, sizeof why->line, "%s: %s; %s%s", where, what, hint, place);
  return false;
}

bool
not_regular (struct distrust *why, const char *path)
{
  return distrusted (why, path, "is not a regular file", "make it a readable UTF-8 file", "");
}

/* oci/vcuda_oci/system/settings_file.py has the same lines.  */
bool
unreadable (struct distrust *why, const char *path)
{
  char what[128];
  if (errno == EWOULDBLOCK)
    return distrusted (why, path, "a program holds a lease on it", "end that program", "");
  if (errno == ENOTDIR)
    return distrusted (why, path, "a part of its path is not a folder", "correct the path", "");
  if (errno == ENXIO) /* a socket */
    return not_regular (why, path);
  snprintf (what, sizeof what, "cannot be read: %s", strerror (errno));
  return distrusted (why, path, what, "make it a readable UTF-8 file", "");
}

/* Reports, by errno, that the link PATH cannot be followed.  */
static bool
broken (struct distrust *why, const char *path)
{
  why->is_broken_link = errno == ENOENT;
  if (!why->is_broken_link)
    return unreadable (why, path);
  return distrusted (why, path, "a link to a file that is missing", "link it to one that is there",
                     "");
}

/* Whether every uid of the host has a uid here, as it has outside of user namespaces.  */
static bool
maps_all_users (void)
{
  char table[4096];
  int fd = open ("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? -1 : read (fd, table, sizeof table - 1);
  if (fd >= 0)
    close (fd);
  table[got > 0 ? got : 0] = '\0';
  return got <= 0 || strstr (table, " 4294967295\n");
}

static bool
has_trusted_owner (const char *place, const struct stat *status, struct distrust *why)
{
  char what[128];
  uid_t owner = status->st_uid;
  if (owner == 0 || owner == geteuid () || (owner == USER_WITHOUT_NUMBER && !maps_all_users ()))
    return true;
  snprintf (what, sizeof what, "uid %u owns it and could change the settings", (unsigned) owner);
  return distrusted (why, place, what, "chown root ", place);
}

/* Whether PLACE has no access control list; false on an error. FD: PLACE's descriptor, or -1.  */
static bool
is_plain (const char *place, int fd)
{
  static const char name[] = "system.posix_acl_access";
  ssize_t size = fd < 0 ? getxattr (place, name, NULL, 0) : fgetxattr (fd, name, NULL, 0);
  return size < 0 && (errno == ENODATA || errno == ENOTSUP);
}

static bool
has_trusted_mode (const char *place, int fd, const struct stat *status, struct distrust *why)
{
  bool is_own_group = status->st_gid == 0 || status->st_gid == getegid ();
  if (!(status->st_mode & (S_IWGRP | S_IWOTH))
      || (!(status->st_mode & S_IWOTH) && is_own_group && is_plain (place, fd)))
    return true;
  return distrusted (why, place, "other users may write it and could change the settings",
                     "chmod go-w ", place);
}

static bool
is_trusted_folder (const char *folder, struct distrust *why)
{
  struct stat status;
  struct statvfs options;
  if (stat (folder, &status) != 0)
    return broken (why, folder);
  if (!has_trusted_owner (folder, &status, why))
    return false;
  return (status.st_mode & S_ISVTX) || has_trusted_mode (folder, -1, &status, why)
         || (statvfs (folder, &options) == 0 && (options.f_flag & ST_RDONLY));
}

static void
cut_last_name (char *path)
{
  char *slash = strrchr (path, '/');
  if (slash)
    *slash = '\0';
}

/* Follows the link PATH, as far as no other user could have replaced a step of it. PLACE gets the
   path of its target.  */
static bool
follow_trusted (const char *path, char place[PATH_MAX], struct distrust *why)
{
  char pending[2 * PATH_MAX], target[PATH_MAX], rest[2 * PATH_MAX];
  struct stat status = { 0 };
  int links = 0;
  snprintf (pending, sizeof pending, "%s", path);
  *place = '\0';
  while (*pending)
    {
      size_t slashes = strspn (pending, "/"), length = strcspn (pending + slashes, "/");
      char name[PATH_MAX];
      snprintf (name, sizeof name, "%.*s", (int) length, pending + slashes);
      memmove (pending, pending + slashes + length, strlen (pending + slashes + length) + 1);
      if (!*name || strcmp (name, ".") == 0)
        continue;
      if (strcmp (name, "..") == 0)
        {
          cut_last_name (place);
          continue;
        }
      if (!is_trusted_folder (*place ? place : "/", why))
        return false;
      size_t used = strlen (place);
      errno = ENAMETOOLONG;
      if (snprintf (place + used, PATH_MAX - used, "/%s", name) >= (int) (PATH_MAX - used)
          || lstat (place, &status) != 0)
        return broken (why, path);
      if (!has_trusted_owner (place, &status, why))
        return false;
      if (!S_ISLNK (status.st_mode))
        continue;
      ssize_t size = readlink (place, target, sizeof target - 1);
      if (size < 0)
        return broken (why, path);
      target[size] = '\0';
      snprintf (rest, sizeof rest, "%s", pending);
      if (++links > MOST_LINKS
          || snprintf (pending, sizeof pending, "%s%s", target, rest) >= (int) sizeof pending)
        return distrusted (why, path, "too many links", "link it to the file itself", "");
      if (*target == '/')
        *place = '\0';
      else
        cut_last_name (place);
    }
  return has_trusted_mode (place, -1, &status, why);
}

/* Opens the target of the link PATH; -1: it must not be read.  */
static int
open_behind_link (const char *path, struct distrust *why)
{
  char place[PATH_MAX];
  int fd = -1;
  why->is_broken_link = true;
  for (int tries = 0; tries < LINK_TRIES && fd < 0 && why->is_broken_link; tries++)
    {
      why->is_broken_link = false;
      if (!follow_trusted (path, place, why))
        continue;
      fd = open (place, OPEN_AS_IT_IS);
      if (fd < 0)
        broken (why, path);
    }
  return fd;
}

/* The file PATH is missing: reports a folder of PATH that is a dangling link.  */
static void
check_missing (const char *path, struct distrust *why)
{
  char folder[PATH_MAX];
  struct stat status;
  snprintf (folder, sizeof folder, "%s", path);
  do
    cut_last_name (folder);
  while (*folder && lstat (folder, &status) != 0);
  if (*folder && stat (folder, &status) != 0)
    distrusted (why, folder, "a link to a folder that is missing", "link it to one that is there",
                "");
}

/* Only ENOENT means that there is no file: a container can cause other errors, such as by a lease.
   The file is checked by its descriptor, because another user may replace a folder above it.  */
int
open_trusted (const char *path, struct distrust *why)
{
  struct stat status;
  char folder[PATH_MAX];
  *why->line = '\0';
  if (path[0] != '/')
    {
      distrusted (why, path, "is not absolute", "write a path that begins with /", "");
      return -1;
    }
  int fd = open (path, OPEN_AS_IT_IS);
  if (fd < 0 && errno == ELOOP)
    return open_behind_link (path, why);
  if (fd < 0)
    {
      if (errno != ENOENT)
        unreadable (why, path);
      else
        check_missing (path, why);
      return -1;
    }
  snprintf (folder, sizeof folder, "%s", path);
  cut_last_name (folder);
  if (fstat (fd, &status) != 0)
    unreadable (why, path);
  else if (has_trusted_owner (path, &status, why) && has_trusted_mode (path, fd, &status, why)
           && is_trusted_folder (*folder ? folder : "/", why))
    return fd;
  close (fd);
  return -1;
}
