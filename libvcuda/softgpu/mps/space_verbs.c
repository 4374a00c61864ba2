/* Version 3's module `namespace`, and the limits of namespaces.  */

#include <stdlib.h>
#include <string.h>

#include "mps/v3_commands.h"

#define FIRST_DRIVER_OF_PARTITIONS 620 /* of those that namespaces have */

/* "4G", "512M", "1024K"; 0: not such a size.  */
static uint64_t
size_of (const char *text)
{
  char *end;
  uint64_t size = strtoull (text, &end, 10);
  const char *units = "KMG", *unit = *end ? strchr (units, *end) : NULL;
  return unit && end != text && !end[1] ? size << 10 * (unit - units + 1) : 0;
}

static const char *
size_text (char text[32], uint64_t size)
{
  unsigned unit = 0;
  for (size >>= 10; unit < 2 && size && size % 1024 == 0; unit++)
    size >>= 10;
  snprintf (text, 32, "%llu%c", (unsigned long long) size, "KMG"[unit]);
  return size ? text : "-";
}

int
mps_set_limits (const struct command *command, struct limits *limits)
{
  const char *pinned = mps_option (command, "pinned-memory-limit");
  const char *percent = mps_option (command, "active-thread-percentage");
  if (!pinned && !percent)
    return mps_wrong (command, "no option is given");
  char *end = NULL;
  double value = percent ? strtod (percent, &end) : 1;
  if (percent && (end == percent || *end || value < 1 || value > 100))
    return mps_wrong (command, "invalid active thread percentage '%s'", percent);
  if (pinned && !size_of (pinned))
    return mps_wrong (command, "invalid pinned memory limit '%s'", pinned);
  if (percent)
    limits->percent = value;
  for (unsigned i = 0; pinned && i < mps.gpu_count; i++)
    limits->pinned_bytes[i] = size_of (pinned);
  return 0;
}

static struct space *
named_space (const struct command *command, struct server *server)
{
  const char *name = command->word[0];
  struct space *space = server && name ? mps_space_of (server, name) : NULL;
  if (server && !space)
    mps_wrong (command, "namespace '%s' not found", name ? name : "");
  return space;
}

static int
space_create (const struct command *command)
{
  const char *name = command->word[0] ? command->word[0] : "";
  struct server *server = mps_named_server (command, mps_option (command, "server"));
  if (!server)
    return 1;
  if (mps_space_of (server, name))
    return mps_wrong (command, "namespace '%s' already exists", name);
  return mps_add_space (server, name)
             ? 0
             : mps_wrong (command, "namespace '%s' cannot be created", name);
}

static int
space_delete (const struct command *command)
{
  struct server *server = mps_named_server (command, mps_option (command, "server"));
  struct space *space = named_space (command, server);
  if (!space)
    return 1;
  if (space == server->space)
    return mps_wrong (command, "the default namespace stays");
  if (mps_clients (server, space) && !mps_option (command, "force"))
    return mps_wrong (command, "namespace '%s' has active clients", space->name);
  mps_remove_space (server, space);
  return 0;
}

/* Puts the clients of SPACE into a partition of one GPU.  */
static int
set_partition (const struct command *command, struct server *server, struct space *space,
               const char *name)
{
  if (!mps_driver_has (FIRST_DRIVER_OF_PARTITIONS))
    return mps_wrong (command, "unknown option '--sm-partition'");
  int device = mps_named_device (command);
  if (device < 0)
    return 1;
  const struct partition *found = mps_named_partition (server, (unsigned) device, name);
  if (!found)
    return mps_wrong (command, "SM partition '%s' not found", name);
  if (mps_clients (server, space))
    return mps_wrong (command, "namespace '%s' has active clients", space->name);
  space->partition = found;
  return 0;
}

static int
space_set (const struct command *command)
{
  struct server *server = mps_named_server (command, mps_option (command, "server"));
  struct space *space = named_space (command, server);
  if (!space)
    return 1;
  const char *name = mps_option (command, "sm-partition");
  return name ? set_partition (command, server, space, name)
              : mps_set_limits (command, &space->limits);
}

static void
print_space (const struct command *command, const struct server *server, const struct space *space)
{
  const struct limits *limits = &space->limits;
  char pinned[32], percent[16], path[4096];
  snprintf (percent, sizeof percent, "%g", limits->percent);
  mps_folder_of (path, server, space);
  mps_row (command, false, 7,
           (const char *[]){ space->name, server->name, mps_status (server),
                             size_text (pinned, limits->pinned_bytes[0]),
                             limits->percent > 0 ? percent : "-", "0", path });
}

static int
space_list (const struct command *command)
{
  static const char *const columns[] = { "name",
                                         "server",
                                         "server-status",
                                         "pinned-memory-limit",
                                         "active-thread-percentage",
                                         "client-priority",
                                         "pipe-directory" };
  const char *only = mps_option (command, "server"), *name = command->word[0];
  if (only && !mps_named_server (command, only))
    return 1;
  mps_row (command, true, 7, columns);
  for (unsigned i = 0; i < MPS_SERVERS * MPS_SPACES; i++)
    {
      const struct server *server = &mps.server[i / MPS_SPACES];
      const struct space *space = &server->space[i % MPS_SPACES];
      if (*space->name && !server->removed && (!only || strcmp (only, server->name) == 0)
          && (!name || strcmp (name, space->name) == 0))
        print_space (command, server, space);
    }
  return 0;
}

const struct verb mps_space_verbs[] = {
  { "namespace", "create", true, space_create },
  { "namespace", "delete", true, space_delete },
  { "namespace", "list", false, space_list },
  { "namespace", "set", true, space_set },
  { 0 },
};
