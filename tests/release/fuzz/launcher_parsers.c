/* Runs the launcher's and the hooks' parsers on one input (front_door.h).  */

/* The hook defines a `die` and a `main` of its own.  */
#define main procfs_main
#define die procfs_die
#include "hooks/procfs_hook.c"
#undef die
#undef main

#include "handover/arguments.h"
#include "handover/claim_socket.h"
#include "handover/error.h"
#include "runtime/config_json.h"
#include "runtime/missing_container.h"
#include "settings/settings.h"

#include "launcher_parsers.h"

#include <stdint.h>
#include <sys/socket.h>

#define NOW "2000-01-01T00:00:00Z"

/* A copy without spare room, so that the sanitizer finds a read past its end.  */
static char *
copy_of (const char *input, size_t size, bool ended)
{
  char *copy = malloc (size + ended + !size);
  memcpy (copy, input, size);
  if (ended)
    copy[size] = '\0';
  return copy;
}

static size_t
put (char *out, size_t used, const char *text)
{
  memcpy (out + used, text, strlen (text) + 1);
  return used + strlen (text) + 1;
}

static size_t
answer_config (const char *input, size_t size, char *out)
{
  char *text = copy_of (input, size, false);
  *out = may_hold_request (text, size) ? '1' : '0';
  free (text);
  return 1;
}

static size_t
answer_words (const char *input, size_t size, char *out)
{
  static char packet[PACKET_BYTES];
  char path[PATH_MAX], *text = copy_of (input, size, true);
  struct global_options said = { 0 };
  char **words = calloc (size + 2, sizeof *words);
  size_t count = 0;
  /* Each word in a block of its own, so that the sanitizer finds a read past its end.  */
  for (char *at = text; at < text + size; at += strlen (at) + 1)
    words[count++] = strdup (at);
  size_t used = put (out, 0, creates_from (words, path) ? path : "");
  read_global_options (words, &said);
  deletes_missing_container (words, "/usr/bin/runc"); /* the answer depends on the host's files */
  deleted_container (words);
  const char *log = said.log ? said.log : "", *format = said.format ? said.format : "text";
  used = put (out, used, strlen (log) < PATH_MAX ? log : "");
  used = put (out, used, strlen (format) < PATH_MAX ? format : "");
  size_t packed = pack_words ((const char *const *) words, packet);
  memcpy (out + used, packet, packed);
  while (count)
    free (words[--count]);
  free (words);
  free (text);
  return used + packed;
}

static size_t
answer_settings (const char *input, size_t size, char *out)
{
  char value[PATH_MAX];
  size_t used = 0;
  const char *const settings[][2] = { { "runtime", "runc" }, { "state-dir", DEFAULT_STATE_DIR } };
  for (size_t i = 0; i < 2; i++)
    {
      char *text = copy_of (input, size, true);
      struct file_text config = { text, size, true };
      used = put (out, used, setting (&config, settings[i][0], settings[i][1], value));
      free (text);
    }
  return used;
}

static size_t
answer_log (const char *input, size_t size, char *out)
{
  char *line = copy_of (input, size, true);
  size_t used = log_entry ("json", NOW, line, out);
  used += log_entry ("text", NOW, line, out + used);
  free (line);
  return used;
}

static size_t
answer_answer (const char *input, size_t size, char *out)
{
  int ends[2];
  char *got = malloc (PATH_MAX);
  size_t most = 1 << 16;
  if (socketpair (AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0
      || send (ends[1], input, size < most ? size : most, 0) < 0)
    abort ();
  shutdown (ends[1], SHUT_WR);
  enum socket_answer said = ask_connected (ends[0], "", 1, got);
  out[0] = (char) said;
  size_t used = said == SOCKET_CLOSED ? 1 : put (out, 1, got + 1);
  close (ends[0]);
  close (ends[1]);
  free (got);
  return used;
}

static size_t
answer_pid (const char *input, size_t size, char *out)
{
  char *state = copy_of (input, size, true);
  int length = snprintf (out, 32, "%ld", pid_of (state));
  free (state);
  return (size_t) length;
}

size_t
answer (const char *input, size_t size, char out[MOST_ANSWER])
{
  static const struct
  {
    char name;
    size_t (*answer) (const char *, size_t, char *);
  } parsers[] = { { 'c', answer_config }, { 'w', answer_words },  { 's', answer_settings },
                  { 'l', answer_log },    { 'a', answer_answer }, { 'p', answer_pid } };
  for (size_t i = 0; size && i < sizeof parsers / sizeof *parsers; i++)
    if (parsers[i].name == *input)
      return parsers[i].answer (input + 1, size - 1, out);
  return 0;
}
