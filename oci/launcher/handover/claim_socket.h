/* Asks the claim socket of the agent or of `vcuda serve`, so that no Python has to start.  */

#pragma once

#include <limits.h>
#include <stddef.h>

#define PACKET_BYTES 65536

enum socket_answer
{
  SOCKET_CLOSED = '?', /* no answer, or one for another program: start Python */
  SOCKET_DONE = '+',   /* the bundle is edited, or the share released */
  SOCKET_REFUSED = '-' /* refused, with the reason */
};

/* Packs WORDS, each ended by a NUL; returns their size, 0 if they do not fit.  */
size_t pack_words (const char *const *words, char packet[PACKET_BYTES]);

/* Sends the packet to FD. ANSWER gets the reply: its kind, then the error line of a refusal and the
   allocation's id, each ended by a NUL and empty where it was not sent.  */
enum socket_answer ask_connected (int fd, const char *packet, size_t size, char answer[PATH_MAX]);

/* Connects to the claim socket in `state_dir` and sends `words` as one packet: config.toml's path,
   the low-level runtime, and the runtime's arguments. An empty runtime marks a request that is not
   a runtime's command line.  */
enum socket_answer ask_claim_socket (const char *state_dir, const char *const *words,
                                     char answer[PATH_MAX]);

/* Prints the error line of a refusal to standard error.  */
void print_refusal (const char *program, const char answer[PATH_MAX]);
