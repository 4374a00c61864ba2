/* The agent's door: a process that is awake already edits the bundle, in a tenth of the time that
   Python takes to start. It runs the same function (oci/vcuda_oci/start/claim_socket.py).  */

#ifndef VCUDA_DOOR_H
#define VCUDA_DOOR_H

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define DOOR_NAME "door.sock"
/* Claiming twice is once, so an answer that comes too late does no harm.  */
#define DOOR_PATIENCE_S 5
#define DOOR_MOST_BYTES 65536

enum door_answer
{
  DOOR_CLOSED = '?', /* nobody there, or not for us: start Python */
  DOOR_DONE = '+',   /* the bundle is as it has to be */
  DOOR_REFUSED = '-' /* with the reason */
};

static int
door_connect (const char *state_dir)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  struct timeval patience = { .tv_sec = DOOR_PATIENCE_S };
  int length = snprintf (address.sun_path, sizeof address.sun_path, "%s/" DOOR_NAME, state_dir);
  if (length < 0 || (size_t) length >= sizeof address.sun_path)
    return -1;
  int fd = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  if (setsockopt (fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0
      && setsockopt (fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0
      && connect (fd, (struct sockaddr *) &address, sizeof address) == 0)
    return fd;
  close (fd);
  return -1;
}

/* WORDS, each ended by a NUL, one behind the other; returns their size, 0 if they do not fit.  */
static size_t
pack_words (const char *const *words, char packet[DOOR_MOST_BYTES])
{
  size_t used = 0;
  for (; *words; words++)
    {
      size_t length = strlen (*words) + 1;
      if (length > DOOR_MOST_BYTES - used)
        return 0;
      memcpy (packet + used, *words, length);
      used += length;
    }
  return used;
}

/* ANSWER gets what came back: behind its first character, the line that refuses, if it does; behind
   that, the allocation's id, which is "" where none came.  */
static enum door_answer
ask_behind (int fd, const char *packet, size_t size, char answer[PATH_MAX])
{
  ssize_t got = -1;
  if (send (fd, packet, size, MSG_NOSIGNAL) == (ssize_t) size)
    got = recv (fd, answer, PATH_MAX - 2, 0);
  if (got < 1 || (answer[0] != DOOR_DONE && answer[0] != DOOR_REFUSED))
    return DOOR_CLOSED;
  answer[got] = answer[got + 1] = '\0';
  return (enum door_answer) answer[0];
}

/* Asks for `words` (settings, low-level runtime, and its own words) in one packet.  */
static enum door_answer
ask_door (const char *state_dir, const char *const *words, char answer[PATH_MAX])
{
  static char packet[DOOR_MOST_BYTES];
  size_t size = pack_words (words, packet);
  int fd = size ? door_connect (state_dir) : -1;
  if (fd < 0)
    return DOOR_CLOSED;
  enum door_answer said = ask_behind (fd, packet, size, answer);
  close (fd);
  return said;
}

#endif
