/* Removes the folder of an ended container, as oci/vcuda_oci/guest/ended_pages.py does: the handle
   of its usage page is recorded in <state>/ended first. By it vcuda finds the page and cuts it back
   for as long as a process has it.  */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ended_page.h"

#define HANDLE_BYTES 128
#define MOST_DEPTH 8

static void
remove_tree (int parent, const char *name, int depth)
{
  int fd = openat (parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *folder = fd < 0 ? NULL : fdopendir (fd);
  for (struct dirent *entry; folder && (entry = readdir (folder));)
    if (strcmp (entry->d_name, ".") != 0 && strcmp (entry->d_name, "..") != 0
        && unlinkat (fd, entry->d_name, 0) != 0 && depth < MOST_DEPTH)
      remove_tree (fd, entry->d_name, depth + 1);
  if (folder)
    closedir (folder);
  unlinkat (parent, name, AT_REMOVEDIR);
}

/* Whether the page has a name or some process has it; ESTALE says that neither is so. ended: a
   folder on the page's file system.  */
static bool
is_kept (int ended, struct file_handle *handle)
{
  int fd = open_by_handle_at (ended, handle, O_PATH | O_CLOEXEC);
  if (fd >= 0)
    close (fd);
  return fd >= 0;
}

void
remove_pages (const char *state_dir, const char *folder)
{
  _Alignas (struct file_handle) unsigned char bytes[sizeof (struct file_handle) + HANDLE_BYTES];
  struct file_handle *handle = (struct file_handle *) bytes;
  char page[PATH_MAX + 8], path[PATH_MAX], name[2 * sizeof bytes + sizeof ".handle"] = "";
  int mount_id;
  memset (bytes, 0, sizeof bytes);
  handle->handle_bytes = HANDLE_BYTES;
  snprintf (page, sizeof page, "%s/usage", folder);
  snprintf (path, sizeof path, "%s/ended", state_dir);
  mkdir (path, 0700);
  int ended = open (path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (name_to_handle_at (AT_FDCWD, page, handle, &mount_id, 0) == 0 && is_kept (ended, handle))
    {
      size_t size = sizeof *handle + handle->handle_bytes;
      for (size_t at = 0; at < size; at++)
        sprintf (name + 2 * at, "%02x", bytes[at]);
      strcat (name, ".handle");
    }
  /* Where there is no room for a record the next sweep tries again.  */
  if (!*name || symlinkat (".", ended, name) == 0 || errno == EEXIST)
    remove_tree (AT_FDCWD, folder, 0);
  if (*name && !is_kept (ended, handle) && errno == ESTALE)
    unlinkat (ended, name, 0);
  close (ended);
}
