/* Version 3's module `server`.  */

#include <stdlib.h>
#include <string.h>

#include "mps/v3_commands.h"

/* Reads "0,1" or UUIDs into the server's; false: no such GPU.  */
static bool
allow (struct server *server, const char *devices)
{
  char text[1024], *rest = text;
  snprintf (text, sizeof text, "%s", devices);
  for (char *one; (one = strtok_r (rest, ",", &rest));)
    {
      int device = mps_device_of (one);
      if (device < 0)
        return false;
      size_t at = strlen (server->gpus);
      snprintf (server->gpus + at, sizeof server->gpus - at, "%s%s", at ? "," : "",
                mps.tie.state->gpu[mps.gpu[device]].uuid);
    }
  return *server->gpus;
}

static int
server_create (const struct command *command)
{
  const char *uid = mps_option (command, "uid"), *name = command->word[0];
  const char *devices = mps_option (command, "allowed-devices");
  uid_t owner = uid ? (uid_t) strtoul (uid, NULL, 10) : command->user->uid;
  char own[MPS_NAME];
  snprintf (own, sizeof own, "uid_%u", (unsigned) owner);
  if (!name && !uid)
    return mps_wrong (command, "a name or --uid is needed");
  if (mps.multiuser && owner != 0)
    return mps_wrong (command, "only --uid=0 is allowed in multiuser mode");
  name = name ? name : own;
  if (mps_server_of (name))
    return mps_wrong (command, "server '%s' already exists", name);
  struct server *server = mps_add_server (name, owner);
  if (!server)
    return mps_wrong (command, "server '%s' cannot be created", name);
  if (devices && !allow (server, devices))
    {
      mps_remove_server (server);
      return mps_wrong (command, "unknown device in '%s'", devices);
    }
  mps_start_server (server);
  return 0;
}

static int
server_delete (const struct command *command)
{
  struct server *server = mps_named_server (command, command->word[0]);
  if (!server)
    return 1;
  if (mps_clients (server, NULL) && !mps_option (command, "force"))
    return mps_wrong (command, "server '%s' has active clients", server->name);
  mps_remove_server (server);
  return 0;
}

const char *
mps_status (const struct server *server)
{
  if (!server->pid)
    return "Stopped";
  if (!server->ready)
    return "Starting";
  return mps_server_recovers (server) ? "Fault" : "Ready";
}

enum
{
  COLUMNS = 7,
  FIELDS = 6, /* of `get` */
};
static const char *const columns[COLUMNS] = {
  "name", "uid", "pid", "status", "pipe-directory", "allowed-devices", "context-ids",
};

struct server_cells
{
  char uid[16], pid[16], path[4096];
  const char *cell[COLUMNS];
};

static void
fill_server (const struct server *server, struct server_cells *row)
{
  snprintf (row->uid, sizeof row->uid, "%u", (unsigned) server->uid);
  snprintf (row->pid, sizeof row->pid, "%d", (int) server->pid);
  mps_folder_of (row->path, server, NULL);
  const char *cell[] = { server->name, row->uid,
                         row->pid,     mps_status (server),
                         row->path,    *server->gpus ? server->gpus : "-",
                         "-" };
  memcpy (row->cell, cell, sizeof cell);
}

static int
server_list (const struct command *command)
{
  struct server_cells row;
  if (command->word[0] && !mps_named_server (command, command->word[0]))
    return 1;
  mps_row (command, true, COLUMNS, columns);
  for (unsigned i = 0; i < MPS_SERVERS; i++)
    {
      const struct server *server = &mps.server[i];
      if (!*server->name || server->removed
          || (command->word[0] && strcmp (command->word[0], server->name) != 0))
        continue;
      fill_server (server, &row);
      mps_row (command, false, COLUMNS, row.cell);
    }
  return 0;
}

static int
server_get (const struct command *command)
{
  struct server_cells row;
  const struct server *server = mps_named_server (command, command->word[0]);
  if (!server)
    return 1;
  fill_server (server, &row);
  const char *field = command->word[1] ? command->word[1] : "";
  for (unsigned i = 0; i < FIELDS; i++)
    if (strcmp (field, columns[i]) == 0)
      {
        fprintf (command->out, "%s\n", row.cell[i]);
        return 0;
      }
  return mps_wrong (command, "unknown field '%s'", field);
}

static int
server_set (const struct command *command)
{
  struct server *server = mps_named_server (command, command->word[0]);
  return server ? mps_set_limits (command, &server->space[0].limits) : 1;
}

const struct verb mps_server_verbs[] = {
  { "server", "create", true, server_create }, { "server", "delete", true, server_delete },
  { "server", "list", false, server_list },    { "server", "get", false, server_get },
  { "server", "set", true, server_set },       { 0 },
};
