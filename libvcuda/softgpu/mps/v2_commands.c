/* Version 2's commands.  */

#include <stdlib.h>
#include <string.h>

#include "mps/daemon.h"

enum
{
  MOST_WORDS = 6,
};

static struct server *const server = mps.server;
static struct limits *const of_server = &mps.server[0].space[0].limits;

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

static void
set_percent (struct limits *limits, const char *text, FILE *out)
{
  char *end;
  double percent = text ? strtod (text, &end) : 0;
  if (!text || *end || percent <= 0 || percent > 100)
    fputs ("Invalid active thread percentage\n", out);
  else
    {
      limits->percent = percent;
      fprintf (out, "%.1f\n", percent);
    }
}

static void
set_pinned (struct limits *limits, const char *device, const char *text, FILE *out)
{
  char *end = NULL;
  int index = mps_device_of (device);
  uint64_t size = text ? strtoull (text, &end, 10) : 0;
  if (index < 0)
    fputs ("Invalid device\n", out);
  else if (!text || end == text || (strcmp (end, "G") != 0 && strcmp (end, "M") != 0))
    fputs ("Invalid pinned memory limit\n", out);
  else
    limits->pinned_bytes[index] = size << (*end == 'G' ? 30 : 20);
}

static void
print_pinned (const struct limits *limits, const char *device, FILE *out)
{
  int index = mps_device_of (device);
  if (index < 0)
    fputs ("Invalid device\n", out);
  else if (!limits->pinned_bytes[index])
    fputs ("No limit set\n", out);
  else
    fprintf (out, "%lluM\n", (unsigned long long) (limits->pinned_bytes[index] >> 20));
}

static void
print_clients (FILE *out)
{
  for (unsigned i = 0; i < mps.count; i++)
    if (mps.connection[i].state == MPS_CLIENT)
      fprintf (out, "%d\n", (int) mps.connection[i].pid);
}

static void
terminate (const char *pid, FILE *out)
{
  const struct connection *client = pid ? mps_client_of (atoi (pid)) : NULL;
  if (client)
    mps_terminate (client);
  else
    fprintf (out, "Client %s not found\n", pid ? pid : "");
}

static bool
is (const char *word, const char *name)
{
  return strcmp (word, name) == 0;
}

/* Commands that only read; false: WORD is none of them.  */
static bool
read_only (char **word, FILE *out)
{
  if (is (word[0], "get_server_list"))
    {
      if (server->ready)
        fprintf (out, "%d\n", (int) server->pid);
    }
  else if (is (word[0], "get_server_status"))
    {
      if (is_server (word[1], out))
        fputs (mps_server_recovers (server) ? "FAULT\n" : "ACTIVE\n", out);
    }
  else if (is (word[0], "get_client_list"))
    {
      if (is_server (word[1], out))
        print_clients (out);
    }
  else if (is (word[0], "get_default_active_thread_percentage"))
    fprintf (out, "%.1f\n", mps.limits.percent);
  else if (is (word[0], "get_active_thread_percentage"))
    {
      if (is_server (word[1], out))
        fprintf (out, "%.1f\n", of_server->percent);
    }
  else if (is (word[0], "get_default_device_pinned_mem_limit"))
    print_pinned (&mps.limits, word[1], out);
  else if (is (word[0], "get_device_pinned_mem_limit"))
    {
      if (is_server (word[1], out))
        print_pinned (of_server, word[2], out);
    }
  else
    return false;
  return true;
}

/* Commands that change something; false: WORD is none of them.  */
static bool
change (char **word, FILE *out)
{
  if (is (word[0], "start_server"))
    {
      if (!word[1] || !is (word[1], "-uid") || !word[2])
        fputs ("usage: start_server -uid <user id>\n", out);
      else if (!server->pid)
        {
          server->uid = (uid_t) strtoul (word[2], NULL, 10);
          mps_start_server (server);
        }
    }
  else if (is (word[0], "shutdown_server"))
    {
      if (is_server (word[1], out))
        mps_end_server (server);
    }
  else if (is (word[0], "terminate_client"))
    {
      if (is_server (word[1], out))
        terminate (word[2], out);
    }
  else if (is (word[0], "set_default_active_thread_percentage"))
    set_percent (&mps.limits, word[1], out);
  else if (is (word[0], "set_active_thread_percentage"))
    {
      if (is_server (word[1], out))
        set_percent (of_server, word[2], out);
    }
  else if (is (word[0], "set_default_device_pinned_mem_limit"))
    set_pinned (&mps.limits, word[1], word[2], out);
  else if (is (word[0], "set_device_pinned_mem_limit"))
    {
      if (is_server (word[1], out))
        set_pinned (of_server, word[2], word[3], out);
    }
  else if (is (word[0], "quit"))
    mps.ended = true;
  else
    return false;
  return true;
}

int
mps_do_v2 (const struct connection *user, char *line, FILE *out)
{
  char *word[MOST_WORDS] = { NULL }, *rest = line;
  for (int i = 0; i < MOST_WORDS - 1 && (word[i] = strtok_r (rest, " ", &rest)); i++)
    continue;
  if (!word[0] || read_only (word, out) || mps_do_partitions (word, user->privileged, out))
    return 0;
  if (!user->privileged)
    fputs ("Permission denied\n", out);
  else if (!change (word, out))
    fprintf (out, "Unknown command: %s\n", word[0]);
  return 0;
}
