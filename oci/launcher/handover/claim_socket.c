/* Asks the claim socket: the agent or `vcuda serve`, which already runs, edits the bundle in a
   tenth of the time that Python takes to start. It runs the same function
   (oci/vcuda_oci/start/claim_socket.py).  */

#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "handover/claim_socket.h"

#define SOCKET_NAME "door.sock"
/* After this time Python makes the claim. A late answer does no harm: a second claim changes
   nothing.  */
#define SOCKET_TIMEOUT_S 5

static int
connect_claim_socket (const char *state_dir)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  struct timeval timeout = { .tv_sec = SOCKET_TIMEOUT_S };
  int length = snprintf (address.sun_path, sizeof address.sun_path, "%s/" SOCKET_NAME, state_dir);
  if (length < 0 || (size_t) length >= sizeof address.sun_path)
    return -1;
  int fd = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  if (setsockopt (fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0
      && setsockopt (fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) == 0
      && connect (fd, (struct sockaddr *) &address, sizeof address) == 0)
    return fd;
  close (fd);
  return -1;
}

size_t
pack_words (const char *const *words, char packet[PACKET_BYTES])
{
  size_t used = 0;
  for (; *words; words++)
    {
      size_t length = strlen (*words) + 1;
      if (length > PACKET_BYTES - used)
        return 0;
      memcpy (packet + used, *words, length);
      used += length;
    }
  return used;
}

enum socket_answer
ask_connected (int fd, const char *packet, size_t size, char answer[PATH_MAX])
{
  ssize_t got = -1;
  if (send (fd, packet, size, MSG_NOSIGNAL) == (ssize_t) size)
    got = recv (fd, answer, PATH_MAX - 2, 0);
  if (got < 1 || (answer[0] != SOCKET_DONE && answer[0] != SOCKET_REFUSED))
    return SOCKET_CLOSED;
  answer[got] = answer[got + 1] = '\0';
  return (enum socket_answer) answer[0];
}

enum socket_answer
ask_claim_socket (const char *state_dir, const char *const *words, char answer[PATH_MAX])
{
  static char packet[PACKET_BYTES];
  size_t size = pack_words (words, packet);
  int fd = size ? connect_claim_socket (state_dir) : -1;
  if (fd < 0)
    return SOCKET_CLOSED;
  enum socket_answer reply = ask_connected (fd, packet, size, answer);
  close (fd);
  return reply;
}

void
print_refusal (const char *program, const char answer[PATH_MAX])
{
  const char *id = answer + strlen (answer) + 1;
  const char *before = *id ? " (allocation " : "", *after = *id ? ")" : "";
  fprintf (stderr, "%s: %s%s%s%s\n", program, answer + 1, before, id, after);
}
