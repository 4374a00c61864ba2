/* Version 2's commands.  */

#include <stdlib.h>
#include <string.h>

#include "mps/daemon.h"

#define MOST_WORDS 6

static struct server *const server = mps.server;

/* Defines a command. LIMITS: its server's, or the default ones; WORD: what follows its name and its
   server.  */
#define COMMAND(name)                                                                              \
  static void name (__attribute__ ((unused)) struct limits *limits,                                \
                    __attribute__ ((unused)) char **word, __attribute__ ((unused)) FILE *out)

static bool
is_server (const char *pid, FILE *out)
{
  if (server->ready && pid && atoi (pid) == server->pid)
    return true;
  fprintf (out, "Server %s not found\n", pid ? pid : "");
  return false;
}

int
mps_device_of (const char *text)
{
  for (unsigned i = 0; text && i < mps.gpu_count; i++)
    {
      char number[16];
      snprintf (number, sizeof number, "%u", i);
      if (strcmp (text, number) == 0 || strcmp (text, mps.tie.state->gpu[mps.gpu[i]].uuid) == 0)
        return (int) i;
    }
  return -1;
}

COMMAND (get_percent) { fprintf (out, "%.1f\n", limits->percent); }

COMMAND (set_percent)
{
  char *end;
  double percent = word[0] ? strtod (word[0], &end) : 0;
  if (!word[0] || *end || percent <= 0 || percent > 100)
    fputs ("Invalid active thread percentage\n", out);
  else
    {
      limits->percent = percent;
      fprintf (out, "%.1f\n", percent);
    }
}

COMMAND (set_pinned)
{
  char *end = NULL, *text = word[1];
  int index = mps_device_of (word[0]);
  uint64_t size = text ? strtoull (text, &end, 10) : 0;
  if (index < 0)
    fputs ("Invalid device\n", out);
  else if (!text || end == text || (strcmp (end, "G") != 0 && strcmp (end, "M") != 0))
    fputs ("Invalid pinned memory limit\n", out);
  else
    limits->pinned_bytes[index] = size << (*end == 'G' ? 30 : 20);
}

COMMAND (get_pinned)
{
  int index = mps_device_of (word[0]);
  if (index < 0)
    fputs ("Invalid device\n", out);
  else if (!limits->pinned_bytes[index])
    fputs ("No limit set\n", out);
  else
    fprintf (out, "%lluM\n", (unsigned long long) (limits->pinned_bytes[index] >> 20));
}

COMMAND (list_servers)
{
  if (server->ready)
    fprintf (out, "%d\n", (int) server->pid);
}

COMMAND (print_status) { fputs (mps_server_recovers (server) ? "FAULT\n" : "ACTIVE\n", out); }

COMMAND (list_clients)
{
  for (unsigned i = 0; i < mps.count; i++)
    if (mps.connection[i].state == MPS_CLIENT)
      fprintf (out, "%d\n", (int) mps.connection[i].pid);
}

COMMAND (start)
{
  if (!word[0] || strcmp (word[0], "-uid") != 0 || !word[1])
    fputs ("usage: start_server -uid <user id>\n", out);
  else if (!server->pid)
    {
      server->uid = (uid_t) strtoul (word[1], NULL, 10);
      mps_start_server (server);
    }
}

COMMAND (shut_down) { mps_end_server (server); }

COMMAND (terminate)
{
  const struct connection *client = word[0] ? mps_client_of (atoi (word[0])) : NULL;
  if (client)
    mps_terminate (client);
  else
    fprintf (out, "Client %s not found\n", word[0] ? word[0] : "");
}

COMMAND (quit) { mps.ended = true; }

static const struct
{
  const char *name;
  bool changes;   /* something: for privileged users only */
  bool of_server; /* the first argument is the server's pid */
  void (*run) (struct limits *limits, char **word, FILE *out);
} commands[] = {
  { "get_server_list", false, false, list_servers },
  { "get_server_status", false, true, print_status },
  { "get_client_list", false, true, list_clients },
  { "get_default_active_thread_percentage", false, false, get_percent },
  { "get_active_thread_percentage", false, true, get_percent },
  { "get_default_device_pinned_mem_limit", false, false, get_pinned },
  { "get_device_pinned_mem_limit", false, true, get_pinned },
  { "start_server", true, false, start },
  { "shutdown_server", true, true, shut_down },
  { "terminate_client", true, true, terminate },
  { "set_default_active_thread_percentage", true, false, set_percent },
  { "set_active_thread_percentage", true, true, set_percent },
  { "set_default_device_pinned_mem_limit", true, false, set_pinned },
  { "set_device_pinned_mem_limit", true, true, set_pinned },
  { "quit", true, false, quit },
};

enum
{
  COMMANDS = sizeof commands / sizeof *commands,
};

int
mps_do_v2 (const struct connection *user, char *line, FILE *out)
{
  char *word[MOST_WORDS] = { NULL }, *rest = line;
  for (int i = 0; i < MOST_WORDS - 1 && (word[i] = strtok_r (rest, " ", &rest)); i++)
    continue;
  if (!word[0] || mps_do_partitions (word, user->privileged, out))
    return 0;
  int at = 0;
  while (at < COMMANDS && strcmp (word[0], commands[at].name) != 0)
    at++;
  if (!user->privileged && (at == COMMANDS || commands[at].changes))
    fputs ("Permission denied\n", out);
  else if (at == COMMANDS)
    fprintf (out, "Unknown command: %s\n", word[0]);
  else if (!commands[at].of_server)
    commands[at].run (&mps.limits, word + 1, out);
  else if (is_server (word[1], out))
    commands[at].run (&server->space[0].limits, word + 2, out);
  return 0;
}
