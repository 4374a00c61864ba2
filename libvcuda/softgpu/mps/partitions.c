/* Static partitions of multiprocessors, in versions 2 and 3: add one, find one, find a client's. */

#include <string.h>

#include "mps/daemon.h"

struct partition *
mps_named_partition (struct server *server, unsigned device, const char *name)
{
  for (unsigned i = 0; i < MPS_PARTITIONS; i++)
    if (*name && server->partition[i].device == device
        && strcmp (server->partition[i].name, name) == 0)
      return &server->partition[i];
  return NULL;
}

/* Whether TEXT, "GPU-UUID/ID" with the UUID or its first digits, names the partition.  */
static bool
is_named (const struct partition *partition, const char *text)
{
  const char *uuid = mps.tie.state->gpu[mps.gpu[partition->device]].uuid;
  const char *slash = strchr (text, '/');
  return *partition->name && slash && slash != text
         && strncmp (text, uuid, (size_t) (slash - text)) == 0
         && strcmp (slash + 1, partition->id) == 0;
}

const struct partition *
mps_partition_of (const struct connection *client, bool *none)
{
  const struct partition *all = client->server->partition;
  *none = !mps.is_partitioned;
  if (client->space->partition)
    return client->space->partition;
  for (unsigned i = 0; i < MPS_PARTITIONS; i++)
    {
      if (is_named (&all[i], client->partition))
        return &all[i];
      *none &= !*all[i].name;
    }
  return NULL;
}

unsigned
mps_free_chunks (unsigned device)
{
  unsigned left = MPS_CHUNKS;
  for (unsigned i = 0; i < MPS_SERVERS * MPS_PARTITIONS; i++)
    {
      const struct partition *one = &mps.server[i / MPS_PARTITIONS].partition[i % MPS_PARTITIONS];
      if (*one->name && one->device == device)
        left -= one->chunks;
    }
  return left;
}

struct partition *
mps_add_partition (struct server *server, unsigned device, const char *name, unsigned long chunks)
{
  static unsigned made;
  struct partition *entry = NULL;
  for (unsigned i = 0; !entry && i < MPS_PARTITIONS; i++)
    if (!*server->partition[i].name)
      entry = &server->partition[i];
  if (!entry || chunks > mps_free_chunks (device))
    return NULL;
  *entry = (struct partition){ .device = device,
                               .chunks = (unsigned) chunks,
                               .multiprocessors = (unsigned) chunks * MPS_CHUNK };
  snprintf (entry->id, sizeof entry->id, "%s%04xAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            mps.version == MPS_V3 ? "K" : "D/", ++made);
  snprintf (entry->name, sizeof entry->name, "%.*s", MPS_NAME - 1, name ? name : entry->id);
  return entry;
}
