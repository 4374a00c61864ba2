/* The MPS control daemon: one thread that serves its sockets and watches its servers.  */

#include "mps/daemon.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum
{
  DRIVER_OF_13_1 = 590,
  CLIENTS = 48, /* of a server */
  CLIENTS_OF_13_1 = 60,
  MAX_CLIENTS_REACHED = 808, /* CUDA_ERROR_MPS_MAX_CLIENTS_REACHED */
  SERVER_NOT_READY = 807,    /* CUDA_ERROR_MPS_SERVER_NOT_READY */
  WRONG_PARTITION = 915,     /* CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION */
};

struct daemon mps = { .limits = { .percent = 100 } };

unsigned
mps_clients (const struct server *server, const struct space *space)
{
  unsigned count = 0;
  for (const struct connection *one = mps.connection; one < mps.connection + mps.count; one++)
    count += one->state == MPS_CLIENT && one->server == server && (!space || one->space == space);
  return count;
}

const struct connection *
mps_client_of (pid_t pid)
{
  for (const struct connection *one = mps.connection; one < mps.connection + mps.count; one++)
    if (one->state == MPS_CLIENT && one->pid == pid)
      return one;
  return NULL;
}

static void
answer (struct connection *client, int error)
{
  bool is_whole = false;
  const struct partition *partition = error ? NULL : mps_partition_of (client, &is_whole);
  if (!error && !partition && !is_whole)
    error = WRONG_PARTITION;
  struct mps_answer answer = { .magic = MPS_ANSWER, .error = error };
  if (partition)
    {
      answer.partition = 1 + (uint32_t) (partition - client->server->partition);
      answer.multiprocessors = partition->multiprocessors;
    }
  if (!error)
    {
      const struct server *server = client->server;
      const struct limits *limits = &client->space->limits;
      double percent = limits->percent > 0 ? limits->percent : 100;
      answer.server = server->slot;
      answer.generation = server->generation;
      answer.percent = percent < 1 ? 1 : (uint32_t) percent;
      answer.holds = mps.version == MPS_V3 && limits->percent > 0;
      for (unsigned i = 0; i < mps.gpu_count; i++)
        if (mps.tie.state->slot[server->slot].gpu[mps.gpu[i]].contexts)
          {
            answer.gpu[answer.gpu_count] = mps.gpu[i];
            answer.pinned_bytes[answer.gpu_count++] = limits->pinned_bytes[i];
          }
      mps_shared_name (answer.shared, server->uid, server->pid, mps.tie.state);
      client->state = MPS_CLIENT;
    }
  else if (client->state == MPS_PENDING)
    client->state = MPS_NEW;
  if (send (client->fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    mps_log ("Client %d has ended", (int) client->pid);
}

void
mps_refuse (const struct server *server)
{
  for (unsigned i = 0; i < mps.count; i++)
    if (mps.connection[i].server == server && mps.connection[i].state == MPS_PENDING)
      answer (&mps.connection[i], SERVER_NOT_READY);
}

/* Finds the server of a client that came by the daemon's own socket.  */
static void
route (struct connection *client)
{
  uid_t uid = mps.multiuser ? geteuid () : client->uid;
  char name[MPS_NAME] = MPS_DEFAULT;
  if (mps.version == MPS_V3)
    snprintf (name, sizeof name, "uid_%u", (unsigned) uid);
  client->server = mps_server_of (name);
  if (!client->server)
    client->server = mps_add_server (name, uid);
  if (client->server && mps.version != MPS_V3 && !client->server->pid)
    client->server->uid = uid;
  client->space = client->server ? client->server->space : NULL;
}

/* Answers a client that waits, where the server is ready for it.  */
static void
serve (struct connection *client)
{
  if (!client->server || (mps.version != MPS_V3 && !client->server->pid))
    route (client);
  struct server *server = client->server;
  bool is_of_other = server && !mps.multiuser && server->uid != client->uid;
  if (!server || (is_of_other && mps.version == MPS_V3))
    answer (client, SERVER_NOT_READY);
  else if (!server->pid)
    mps_start_server (server);
  else if (is_of_other)
    {
      /* Its clients end first: then the next server is of this user.  */
      if (!mps_clients (server, NULL))
        mps_end_server (server);
    }
  else if (!server->ready || server->ending)
    return;
  else if (mps_server_recovers (server))
    answer (client, SERVER_NOT_READY);
  else if (mps_clients (server, NULL)
           >= (mps_driver_has (DRIVER_OF_13_1) ? CLIENTS_OF_13_1 : CLIENTS))
    answer (client, MAX_CLIENTS_REACHED);
  else
    answer (client, 0);
}

/* Sends what was printed, a NUL and the control program's exit status.  */
static void
obey (struct connection *user, char *line)
{
  char *text = NULL;
  size_t length = 0;
  mps_log ("Cmd:%s", line);
  FILE *out = open_memstream (&text, &length);
  int status = (mps.version == MPS_V3 ? mps_do_v3 : mps_do_v2) (user, line, out);
  fputc (0, out);
  fputc (status, out);
  fclose (out);
  if (send (user->fd, text, length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    mps_log ("UI closed");
  free (text);
}

/* False: the connection has ended.  */
static bool
hear (struct connection *from)
{
  char packet[512];
  ssize_t length = recv (from->fd, packet, sizeof packet - 1, MSG_DONTWAIT);
  if (length <= 0)
    return length < 0 && (errno == EAGAIN || errno == EINTR);
  packet[length] = 0;
  struct mps_hello hello;
  memcpy (&hello, packet, sizeof hello);
  if (length == sizeof hello && hello.magic == MPS_HELLO && hello.slot < SOFTGPU_MAX_SLOTS)
    {
      from->slot = hello.slot;
      hello.partition[MPS_PARTITION - 1] = 0;
      strcpy (from->partition, hello.partition);
      from->state = MPS_PENDING;
      mps_log ("NEW CLIENT %d from user %u", (int) from->pid, (unsigned) from->uid);
    }
  else if (from->state == MPS_NEW)
    obey (from, packet);
  return true;
}

static void
accept_one (const struct listener *listener)
{
  struct ucred peer;
  socklen_t length = sizeof peer;
  int fd = accept4 (listener->fd, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0)
    return;
  mps_log ("Accepting connection...");
  bool known = getsockopt (fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  if (!known || mps.count == MPS_CONNECTIONS || (geteuid () != 0 && peer.uid != geteuid ()))
    {
      mps_log ("User did not send valid credentials");
      close (fd);
      return;
    }
  mps.connection[mps.count++] = (struct connection){
    .fd = fd,
    .privileged = listener->privileged || peer.uid == geteuid (),
    .pid = peer.pid,
    .uid = peer.uid,
    .server = listener->server,
    .space = listener->space,
  };
}

/* The server takes new clients once those that a fault has ended have disconnected.  */
static void
recover (struct server *server)
{
  if (!mps_server_recovers (server) || mps_clients (server, NULL))
    return;
  softgpu_lock (&mps.tie);
  mps.tie.state->slot[server->slot].fault = 0;
  softgpu_unlock (&mps.tie);
  mps_log ("Server %d has recovered", (int) server->pid);
}

static void
drop (unsigned at)
{
  close (mps.connection[at].fd);
  mps.connection[at] = mps.connection[--mps.count];
}

/* Commands add and remove listeners: those that wait are found by their descriptors.  */
static void
accept_all (const struct pollfd *watch, unsigned count)
{
  for (unsigned i = 0; i < count; i++)
    for (unsigned k = 0; watch[i].revents && k < mps.listeners; k++)
      if (mps.listener[k].fd == watch[i].fd)
        accept_one (&mps.listener[k]);
}

void
mps_loop (void)
{
  static struct pollfd watch[MPS_CONNECTIONS + MPS_LISTENERS];
  while (!mps.ended)
    {
      unsigned count = mps.count, listeners = mps.listeners;
      for (unsigned i = 0; i < count; i++)
        watch[i] = (struct pollfd){ .fd = mps.connection[i].fd, .events = POLLIN };
      for (unsigned i = 0; i < listeners; i++)
        watch[count + i] = (struct pollfd){ .fd = mps.listener[i].fd, .events = POLLIN };
      poll (watch, count + listeners, MPS_POLL_MS);
      for (unsigned i = count; i-- > 0;)
        if (watch[i].revents && !hear (&mps.connection[i]))
          drop (i);
      accept_all (watch + count, listeners);
      mps_watch_servers ();
      for (unsigned i = 0; i < MPS_SERVERS; i++)
        recover (&mps.server[i]);
      for (unsigned i = 0; i < mps.count; i++)
        if (mps.connection[i].state == MPS_PENDING)
          serve (&mps.connection[i]);
      for (unsigned i = mps.count; i-- > 0;)
        if (mps.connection[i].state == MPS_DROPPED)
          drop (i);
    }
}
