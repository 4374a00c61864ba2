/* The MPS control daemon: one thread that serves two sockets and watches one server.  */

#include "mps/daemon.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum
{
  MAX_CLIENTS_REACHED = 808, /* CUDA_ERROR_MPS_MAX_CLIENTS_REACHED */
  SERVER_NOT_READY = 807,    /* CUDA_ERROR_MPS_SERVER_NOT_READY */
};

struct daemon mps = { .limits = { .percent = 100 } };
unsigned
mps_clients (void)
{
  unsigned count = 0;
  for (unsigned i = 0; i < mps.count; i++)
    count += mps.connection[i].state == MPS_CLIENT;
  return count;
}

static void
answer (struct connection *client, int error)
{
  struct mps_answer answer = { .magic = MPS_ANSWER, .error = error };
  if (!error)
    {
      const struct server *server = &mps.server;
      answer.server = server->slot;
      answer.generation = server->generation;
      answer.percent = server->limits.percent < 1 ? 1 : (uint32_t) server->limits.percent;
      for (unsigned i = 0; i < mps.gpu_count; i++)
        if (mps.tie.state->slot[server->slot].gpu[mps.gpu[i]].contexts)
          {
            answer.gpu[answer.gpu_count] = mps.gpu[i];
            answer.pinned_bytes[answer.gpu_count++] = server->limits.pinned_bytes[i];
          }
      mps_shared_name (answer.shared, server->uid, server->pid);
      client->state = MPS_CLIENT;
    }
  if (send (client->fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    mps_log ("Client %d has gone", (int) client->pid);
}

/* Answers a client that waits, where the server is ready for it.  */
static void
serve (struct connection *client)
{
  struct server *server = &mps.server;
  if (!server->pid)
    mps_start_server (mps.multiuser ? geteuid () : client->uid);
  else if (!mps.multiuser && server->uid != client->uid)
    {
      /* Its clients end first: then the next server is of this user.  */
      if (!mps_clients ())
        mps_end_server ();
    }
  else if (!server->ready || server->ending)
    return;
  else if (mps_server_recovers ())
    answer (client, SERVER_NOT_READY);
  else if (mps_clients () >= mps_most_clients ())
    answer (client, MAX_CLIENTS_REACHED);
  else
    answer (client, 0);
}

static void
say (int fd, const char *text, size_t length)
{
  if (send (fd, text, length + 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    mps_log ("UI closed");
}

static void
obey (struct connection *user, char *line)
{
  char *text = NULL;
  size_t length = 0;
  mps_log ("Cmd:%s", line);
  FILE *out = open_memstream (&text, &length);
  mps_do (line, user->privileged, out);
  fclose (out);
  say (user->fd, text, length);
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
      from->state = MPS_PENDING;
      mps_log ("NEW CLIENT %d from user %u: %s", (int) from->pid, (unsigned) from->uid,
               mps.server.ready && (mps.multiuser || mps.server.uid == from->uid)
                   ? "Server already exists"
                   : "Server is not ready, push client to pending list");
    }
  else if (from->state == MPS_NEW)
    obey (from, packet);
  return true;
}

static void
accept_one (int listener, bool privileged)
{
  struct ucred peer;
  socklen_t length = sizeof peer;
  int fd = accept4 (listener, NULL, NULL, SOCK_CLOEXEC);
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
    .fd = fd, .privileged = privileged || peer.uid == geteuid (), .pid = peer.pid, .uid = peer.uid
  };
}

/* Once the clients that a fault has ended are gone, the server takes new ones.  */
static void
recover (void)
{
  if (!mps_server_recovers () || mps_clients ())
    return;
  softgpu_lock (&mps.tie);
  mps.tie.state->slot[mps.server.slot].fault = 0;
  softgpu_unlock (&mps.tie);
  mps_log ("Server %d has recovered", (int) mps.server.pid);
}

void
mps_watch_server (void)
{
  uint32_t place[2];
  struct server *server = &mps.server;
  if (!server->pid)
    return;
  if (!server->ready && !server->ending)
    {
      struct pollfd look = { .fd = server->fd, .events = POLLIN };
      if (poll (&look, 1, 0) == 1 && read (server->fd, place, sizeof place) == sizeof place)
        {
          server->slot = place[0];
          server->generation = place[1];
          server->ready = true;
          mps_log ("Server %d is ready", (int) server->pid);
        }
    }
  if (waitpid (server->pid, NULL, WNOHANG) != server->pid)
    return;
  mps_log ("Server %d exited", (int) server->pid);
  bool failed = !server->ready;
  char name[64], path[96];
  mps_shared_name (name, server->uid, server->pid);
  snprintf (path, sizeof path, "/dev/shm/%s", name);
  unlink (path);
  close (server->fd);
  *server = (struct server){ 0 };
  softgpu_lock (&mps.tie);
  softgpu_reap (&mps.tie);
  softgpu_unlock (&mps.tie);
  for (unsigned i = 0; failed && i < mps.count; i++)
    if (mps.connection[i].state == MPS_PENDING)
      answer (&mps.connection[i], SERVER_NOT_READY);
}

static void
drop (unsigned at)
{
  close (mps.connection[at].fd);
  mps.connection[at] = mps.connection[--mps.count];
}

void
mps_loop (const int listener[2])
{
  static struct pollfd watch[MPS_CONNECTIONS + 2];
  while (!mps.ended)
    {
      unsigned count = mps.count;
      for (unsigned i = 0; i < count; i++)
        watch[i] = (struct pollfd){ .fd = mps.connection[i].fd, .events = POLLIN };
      for (unsigned i = 0; i < 2; i++)
        watch[count + i] = (struct pollfd){ .fd = listener[i], .events = POLLIN };
      poll (watch, count + 2, MPS_LOOK_MS);
      for (unsigned i = count; i-- > 0;)
        if (watch[i].revents && !hear (&mps.connection[i]))
          drop (i);
      for (unsigned i = 0; i < 2; i++)
        if (watch[count + i].revents)
          accept_one (listener[i], i == 1);
      mps_watch_server ();
      recover ();
      for (unsigned i = 0; i < mps.count; i++)
        if (mps.connection[i].state == MPS_PENDING)
          serve (&mps.connection[i]);
    }
}
