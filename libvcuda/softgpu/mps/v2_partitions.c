/* Version 2's commands for static partitions, in a daemon that was started with -S.

   Source: NVIDIA's guide to MPS, "Legacy MPS v2 Interface"; for what the commands print, the notes
   and tests of public programs.  */

#include <stdlib.h>
#include <string.h>

#include "mps/daemon.h"

static struct server *const server = mps.server;

/* The index in mps.gpu of the GPU with a UUID that begins with TEXT; -1: none.  */
static int
device_of (const char *text)
{
  for (unsigned i = 0; text && strlen (text) > strlen ("GPU-") && i < mps.gpu_count; i++)
    if (strncmp (mps.tie.state->gpu[mps.gpu[i]].uuid, text, strlen (text)) == 0)
      return (int) i;
  return -1;
}

static bool
has_clients (const struct partition *partition)
{
  bool none;
  for (const struct connection *one = mps.connection; one < mps.connection + mps.count; one++)
    if (one->state == MPS_CLIENT && mps_partition_of (one, &none) == partition)
      return true;
  return false;
}

static void
add (const char *gpu, const char *text, FILE *out)
{
  char *end = NULL;
  int device = device_of (gpu);
  unsigned long chunks = text ? strtoul (text, &end, 10) : 0;
  if (device < 0)
    fprintf (out, "Invalid device %s\n", gpu ? gpu : "");
  else if (!chunks || *end || *text == '-')
    fprintf (out, "Invalid number of chunks %s\n", text ? text : "");
  else
    {
      const struct partition *made = mps_add_partition (server, (unsigned) device, NULL, chunks);
      if (made)
        fprintf (out, "Partition %s/%s created\n", mps.tie.state->gpu[mps.gpu[device]].uuid,
                 made->id);
      else
        fprintf (out,
                 "Failed to fulfill the requested SM partition of %lu chunks, error"
                 " CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION\n",
                 chunks);
    }
}

static void
rm (const char *gpu, const char *id, FILE *out)
{
  int device = device_of (gpu);
  struct partition *found
      = device < 0 || !id ? NULL : mps_named_partition (server, (unsigned) device, id);
  if (!found)
    fprintf (out, "Invalid partition %s\n", id ? id : "");
  else if (has_clients (found))
    fprintf (out, "Partition %s in use. Terminate all clients before removing.\n", id);
  else
    *found = (struct partition){ 0 };
}

/* Prints each GPU with its free and used chunks and multiprocessors, then its partitions; nothing
   before the server is ready.  */
static void
list (FILE *out)
{
  if (!server->ready)
    return;
  fputs ("GPU           Partition                               free    used    free  used  clients"
         "\n                                                      chunks  chunks  SM    SM\n",
         out);
  for (unsigned device = 0; device < mps.gpu_count; device++)
    {
      const char *uuid = mps.tie.state->gpu[mps.gpu[device]].uuid;
      unsigned left = mps_free_chunks (device), used = MPS_CHUNKS - left;
      fprintf (out, "%-13.12s %-39s %-7u %-7u %-5u %u\n", uuid, "", left, used,
               (unsigned) SOFTGPU_MULTIPROCESSORS - used * MPS_CHUNK, used * MPS_CHUNK);
      for (unsigned i = 0; i < MPS_PARTITIONS; i++)
        {
          const struct partition *one = &server->partition[i];
          if (*one->name && one->device == device)
            fprintf (out, "%-13.12s %-39s %-7s %-7u %-5s %-5u %s\n", uuid, one->id, "", one->chunks,
                     "", one->multiprocessors, has_clients (one) ? "Yes" : "No");
        }
    }
}

bool
mps_do_partitions (char **word, bool privileged, FILE *out)
{
  bool lists = strcmp (word[0], "lspart") == 0;
  if ((!lists && strcmp (word[0], "sm_partition") != 0) || !mps_driver_has (MPS_FIRST_PARTITIONS))
    return false;
  if (!mps.is_partitioned)
    fputs ("Static partitioning mode is not enabled\n", out);
  else if (lists)
    list (out);
  else if (!privileged)
    fputs ("Permission denied\n", out);
  else if (word[1] && strcmp (word[1], "add") == 0)
    add (word[2], word[3], out);
  else if (word[1] && strcmp (word[1], "rm") == 0)
    rm (word[2], word[3], out);
  else
    fputs ("usage: sm_partition add <GPU> <chunks> | sm_partition rm <GPU> <partition>\n", out);
  return true;
}
