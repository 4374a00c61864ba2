/* Version 3's module `sm-partition`.

   Source: NVIDIA's guide to MPS, release 615, "SM Partitions" and "Using Static SM Partitioning".
   */

#include <stdlib.h>
#include <string.h>

#include "mps/v3_commands.h"

static bool
has_clients (unsigned device)
{
  for (const struct connection *one = mps.connection; one < mps.connection + mps.count; one++)
    if (one->state == MPS_CLIENT
        && mps.tie.state->slot[one->server->slot].gpu[mps.gpu[device]].contexts)
      return true;
  return false;
}

/* The server and, in *DEVICE, the GPU that the options name; NULL: an error was printed.  */
static struct server *
named_place (const struct command *command, unsigned *device)
{
  struct server *server = mps_named_server (command, mps_option (command, "server"));
  int found = server ? mps_named_device (command) : -1;
  *device = (unsigned) found;
  if (found < 0)
    return NULL;
  if (has_clients (*device))
    {
      mps_wrong (command, "device '%s' has active clients", mps_option (command, "device"));
      return NULL;
    }
  return server;
}

static int
partition_create (const struct command *command)
{
  unsigned device;
  const char *name = command->word[0] ? command->word[0] : "";
  const char *text = mps_option (command, "chunks");
  struct server *server = named_place (command, &device);
  if (!server)
    return 1;
  char *end = NULL;
  unsigned long chunks = text ? strtoul (text, &end, 10) : 0;
  if (!chunks || *end || *text == '-')
    return mps_wrong (command, "invalid number of chunks '%s'", text ? text : "");
  if (!mps_is_name (name))
    return mps_wrong (command, "SM partition '%s' cannot be created", name);
  if (mps_named_partition (server, device, name))
    return mps_wrong (command, "SM partition '%s' already exists", name);
  const struct partition *entry = mps_add_partition (server, device, name, chunks);
  if (!entry)
    return mps_wrong (command, "%lu chunks are asked for, %u are free", chunks,
                      mps_free_chunks (device));
  const char *uuid = mps.tie.state->gpu[mps.gpu[device]].uuid;
  if (server->ready)
    fprintf (command->out,
             "SM partition '%s' created on device %s (sm-count=%u)\nCUDA_MPS_SM_PARTITION=%s/%s\n",
             name, uuid, entry->multiprocessors, uuid, entry->id);
  return 0;
}

static int
partition_delete (const struct command *command)
{
  unsigned device;
  const char *name = command->word[0] ? command->word[0] : "";
  struct server *server = named_place (command, &device);
  struct partition *found = server ? mps_named_partition (server, device, name) : NULL;
  if (!found)
    return server ? mps_wrong (command, "SM partition '%s' not found", name) : 1;
  for (unsigned i = 0; i < MPS_SPACES; i++)
    if (server->space[i].partition == found)
      return mps_wrong (command, "namespace '%s' has SM partition '%s'", server->space[i].name,
                        name);
  *found = (struct partition){ 0 };
  fprintf (command->out, "SM partition '%s' deleted from device %s\n", name,
           mps.tie.state->gpu[mps.gpu[device]].uuid);
  return 0;
}

static void
print_partition (const struct command *command, const struct server *server,
                 const struct partition *one)
{
  char chunks[16], multiprocessors[16];
  snprintf (chunks, sizeof chunks, "%u", one->chunks);
  snprintf (multiprocessors, sizeof multiprocessors, "%u", one->multiprocessors);
  mps_row (command, false, 8,
           (const char *[]){ server->name, mps.tie.state->gpu[mps.gpu[one->device]].uuid, one->name,
                             chunks, multiprocessors, "false",
                             server->ready ? "created" : "configured", one->id });
}

static int
partition_list (const struct command *command)
{
  static const char *const columns[]
      = { "server", "device",      "name", "chunks", "sm-count", "include-remainder",
          "status", "visible-uuid" };
  const char *only = mps_option (command, "server");
  if (only && !mps_named_server (command, only))
    return 1;
  mps_row (command, true, 8, columns);
  for (unsigned i = 0; i < MPS_SERVERS * MPS_PARTITIONS; i++)
    {
      const struct server *server = &mps.server[i / MPS_PARTITIONS];
      const struct partition *one = &server->partition[i % MPS_PARTITIONS];
      if (*one->name && !server->removed && (!only || strcmp (only, server->name) == 0))
        print_partition (command, server, one);
    }
  return 0;
}

const struct verb mps_partition_verbs[] = {
  { "sm-partition", "create", true, partition_create },
  { "sm-partition", "delete", true, partition_delete },
  { "sm-partition", "list", false, partition_list },
  { 0 },
};
