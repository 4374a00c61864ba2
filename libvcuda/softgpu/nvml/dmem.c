/* Keeps the files of the dmem controller as a driver and the kernel do.

   Source: the kernel's cgroup-v2.rst, "DMEM"; NVIDIA's "MPS v3 Memory Partitioning", "Ancestor
   reservation propagation".  */

#include "nvml/dmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum
{
  FOLDER = 4096, /* as long as cgroup_of lets it be */
  PATH = FOLDER + 32,
  MOST = 8192,
};

/* Puts the path of FOLDER's file NAME into PATH and returns it.  */
static const char *
file_of (char *path, const char *folder, const char *name)
{
  snprintf (path, PATH, "%.*s/%s", FOLDER - 1, folder, name);
  return path;
}

/* Cuts the last part off FOLDER; false: none is left.  */
static bool
go_up (char *folder)
{
  char *slash = strrchr (folder, '/');
  if (!slash || slash == folder)
    return false;
  *slash = 0;
  return true;
}

/* Reads the file at PATH; "" if there is none.  */
static void
read_text (const char *path, char *text)
{
  FILE *file = fopen (path, "re");
  size_t length = file ? fread (text, 1, MOST - 1, file) : 0;
  text[length] = 0;
  if (file)
    fclose (file);
}

bool
softgpu_dmem_accounts (const char *folder)
{
  char at[FOLDER], path[PATH], text[MOST];
  snprintf (at, sizeof at, "%s", folder);
  do
    {
      read_text (file_of (path, at, "cgroup.controllers"), text);
      if (strstr (text, "dmem"))
        return true;
    }
  while (go_up (at));
  return false;
}

/* The bytes of region KEY in TEXT; 0: it has none.  */
static uint64_t
bytes_of (const char *text, const char *key)
{
  const char *line = strstr (text, key);
  return line ? strtoull (line + strlen (key), NULL, 10) : 0;
}

/* Replaces the line of KEY in the file at PATH; false: it cannot be written.  */
static bool
write_bytes (const char *path, const char *key, uint64_t bytes)
{
  char text[MOST];
  read_text (path, text);
  FILE *file = fopen (path, "we");
  if (!file)
    return false;
  for (char *line = strtok (text, "\n"); line; line = strtok (NULL, "\n"))
    if (strncmp (line, key, strlen (key)) != 0)
      fprintf (file, "%s\n", line);
  if (bytes == NVML_DEVICE_MEMORY_LIMIT_MAX)
    fprintf (file, "%smax\n", key);
  else
    fprintf (file, "%s%" PRIu64 "\n", key, bytes);
  return fclose (file) == 0;
}

nvmlReturn_t
softgpu_dmem_set (const char *folder, unsigned pci_bus, uint64_t soft, uint64_t hard)
{
  char at[FOLDER], path[PATH], text[MOST], key[64];
  snprintf (key, sizeof key, "nvidia/00000000:%02x:00.0/vidmem ", pci_bus);
  snprintf (at, sizeof at, "%s", folder);
  REQUIRE (access (file_of (path, at, "dmem.max"), F_OK) == 0, NVML_ERROR_NOT_FOUND);
  REQUIRE (write_bytes (path, key, hard), NVML_ERROR_OPERATING_SYSTEM);
  read_text (file_of (path, at, "dmem.min"), text);
  const uint64_t before = bytes_of (text, key);
  do
    {
      read_text (path, text);
      REQUIRE (write_bytes (path, key, bytes_of (text, key) - before + soft),
               NVML_ERROR_OPERATING_SYSTEM);
    }
  while (go_up (at) && access (file_of (path, at, "dmem.min"), F_OK) == 0);
  return NVML_SUCCESS;
}
