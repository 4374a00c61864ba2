/* Servers and namespaces of version 3: their names, directories and sockets.  */

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mps/daemon.h"

bool
mps_is_name (const char *text)
{
  size_t length = strlen (text);
  return length && length < MPS_NAME
         && strspn (text, "abcdefghijklmnopqrstuvwxyz0123456789_") == length;
}

struct server *
mps_server_of (const char *name)
{
  for (unsigned i = 0; i < MPS_SERVERS; i++)
    if (!mps.server[i].removed && *name && strcmp (mps.server[i].name, name) == 0)
      return &mps.server[i];
  return NULL;
}

struct space *
mps_space_of (struct server *server, const char *name)
{
  for (unsigned i = 0; i < MPS_SPACES; i++)
    if (*name && strcmp (server->space[i].name, name) == 0)
      return &server->space[i];
  return NULL;
}

void
mps_folder_of (char path[4096], const struct server *server, const struct space *space)
{
  snprintf (path, 4096, "%s/%s%s%s", mps.pipes, server->name, space ? "/" : "",
            space ? space->name : "");
}

static bool
open_socket (struct server *server, struct space *space)
{
  char path[4096];
  mps_folder_of (path, server, space);
  mkdir (path, 0755);
  return mps_listen (path, MPS_CONTROL, 0666, server, space ? space : server->space);
}

/* Removes the directory of a server or of its namespace, and stops listening there.  */
static void
close_socket (struct server *server, struct space *space)
{
  char path[4096], socket[4096];
  mps_folder_of (path, server, space);
  if (snprintf (socket, sizeof socket, "%s/" MPS_CONTROL, path) < (int) sizeof socket)
    unlink (socket);
  rmdir (path);
  for (unsigned i = mps.listeners; i-- > 0;)
    if (mps.listener[i].server == server && (!space || mps.listener[i].space == space))
      {
        close (mps.listener[i].fd);
        mps.listener[i] = mps.listener[--mps.listeners];
      }
}

struct space *
mps_add_space (struct server *server, const char *name)
{
  struct space *space = NULL;
  for (unsigned i = 0; !space && i < MPS_SPACES; i++)
    if (!*server->space[i].name)
      space = &server->space[i];
  if (!space || !mps_is_name (name))
    return NULL;
  strcpy (space->name, name);
  if (open_socket (server, space))
    return space;
  mps_remove_space (server, space);
  return NULL;
}

void
mps_remove_space (struct server *server, struct space *space)
{
  for (struct connection *one = mps.connection; one < mps.connection + mps.count; one++)
    {
      if (one->server != server || one->space != space)
        continue;
      if (one->state == MPS_CLIENT)
        mps_terminate (one);
      if (one->state != MPS_NEW)
        one->state = MPS_DROPPED;
      one->server = NULL;
    }
  close_socket (server, space);
  *space = (struct space){ 0 };
}

struct server *
mps_add_server (const char *name, uid_t uid)
{
  struct server *server = NULL;
  for (unsigned i = 0; !server && i < MPS_SERVERS; i++)
    if (!*mps.server[i].name)
      server = &mps.server[i];
  if (!server || !mps_is_name (name))
    return NULL;
  strcpy (server->name, name);
  server->uid = uid;
  if (open_socket (server, NULL) && mps_add_space (server, MPS_DEFAULT))
    return server;
  mps_remove_server (server);
  return NULL;
}

void
mps_remove_server (struct server *server)
{
  for (unsigned i = 0; i < MPS_SPACES; i++)
    if (*server->space[i].name)
      mps_remove_space (server, &server->space[i]);
  if (*server->name)
    close_socket (server, NULL);
  mps_end_server (server);
  if (server->pid)
    server->removed = true;
  else
    *server = (struct server){ 0 };
}
