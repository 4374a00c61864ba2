/* Version 3's commands: parsing, printing of lists, and the modules `client` and `device`.  */

#include "mps/v3_commands.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *
mps_option (const struct command *command, const char *name)
{
  for (unsigned i = 0; i < command->options; i++)
    if (strcmp (command->name[i], name) == 0)
      return command->value[i];
  return NULL;
}

int
mps_wrong (const struct command *command, const char *format, ...)
{
  va_list arguments;
  fputs ("Error: ", command->out);
  va_start (arguments, format);
  vfprintf (command->out, format, arguments);
  va_end (arguments);
  fputc ('\n', command->out);
  return 1;
}

void
mps_row (const struct command *command, bool is_header, unsigned count, const char *const cell[])
{
  const char *format = mps_option (command, "format");
  bool is_csv = format && strncmp (format, "csv", 3) == 0;
  if (is_header && format && strstr (format, "noheader"))
    return;
  for (unsigned i = 0; i < count; i++)
    fprintf (command->out, is_csv ? "%s%s" : "%s%-22s  ", i && is_csv ? "," : "", cell[i]);
  fputc ('\n', command->out);
}

struct server *
mps_named_server (const struct command *command, const char *name)
{
  struct server *server = name ? mps_server_of (name) : NULL;
  if (!server)
    mps_wrong (command, "server '%s' not found", name ? name : "");
  return server;
}

int
mps_named_device (const struct command *command)
{
  const char *device = mps_option (command, "device");
  int found = mps_device_of (device);
  if (found < 0)
    mps_wrong (command, "unknown device '%s'", device ? device : "");
  return found;
}

static int
client_list (const struct command *command)
{
  static const char *const columns[] = { "pid", "server", "device", "maws-ns", "cmd" };
  const char *name = mps_option (command, "server");
  if (name && !mps_named_server (command, name))
    return 1;
  mps_row (command, true, 5, columns);
  for (const struct connection *one = mps.connection; one < mps.connection + mps.count; one++)
    {
      char pid[16];
      if (one->state != MPS_CLIENT || (name && strcmp (name, one->server->name) != 0))
        continue;
      snprintf (pid, sizeof pid, "%d", (int) one->pid);
      mps_row (command, false, 5,
               (const char *[]){ pid, one->server->name, "0", one->space->name,
                                 mps.tie.state->slot[one->slot].command });
    }
  return 0;
}

static int
client_terminate (const struct command *command)
{
  const char *pid = command->word[0];
  const struct connection *client = pid ? mps_client_of (atoi (pid)) : NULL;
  if (!client)
    return mps_wrong (command, "client '%s' not found", pid ? pid : "");
  mps_terminate (client);
  return 0;
}

static int
device_list (const struct command *command)
{
  static const char *const columns[] = { "ordinal", "server",    "pci-id",       "device-uuid",
                                         "name",    "total-sms", "total-chunks", "attributes" };
  const char *name = mps_option (command, "server");
  const struct server *server = name ? mps_named_server (command, name) : NULL;
  if (name && !server)
    return 1;
  mps_row (command, true, 8, columns);
  for (unsigned i = 0; i < mps.gpu_count; i++)
    {
      const struct softgpu_gpu *gpu = &mps.tie.state->gpu[mps.gpu[i]];
      char number[16], pci[32], multiprocessors[16], chunks[16];
      if (server && *server->gpus && !strstr (server->gpus, gpu->uuid))
        continue;
      snprintf (number, sizeof number, "%u", i);
      snprintf (pci, sizeof pci, "00000000:%02x:00.0", gpu->pci_bus);
      snprintf (multiprocessors, sizeof multiprocessors, "%u", (unsigned) SOFTGPU_MULTIPROCESSORS);
      snprintf (chunks, sizeof chunks, "%u", (unsigned) MPS_CHUNKS);
      mps_row (command, false, 8,
               (const char *[]){ number, name ? name : "-", pci, gpu->uuid, gpu->name,
                                 multiprocessors, chunks, "-" });
    }
  return 0;
}

const struct verb mps_client_verbs[] = {
  { "client", "list", false, client_list },
  { "client", "terminate", true, client_terminate },
  { "device", "list", false, device_list },
  { 0 },
};

static bool
read_command (struct command *command, char *line)
{
  unsigned words = 0;
  char *rest = line;
  for (char *text; (text = strtok_r (rest, " ", &rest));)
    {
      bool is_option = strncmp (text, "--", 2) == 0;
      char *value = strchr (text, '=');
      if (is_option || value)
        {
          if (command->options == VERB_OPTIONS)
            return false;
          if (value)
            *value++ = 0;
          command->name[command->options] = text + (is_option ? 2 : 0);
          command->value[command->options++] = value ? value : "";
        }
      else if (!command->module)
        command->module = text;
      else if (!command->verb)
        command->verb = text;
      else if (words == VERB_WORDS)
        return false;
      else
        command->word[words++] = text;
    }
  return command->module;
}

int
mps_do_v3 (const struct connection *user, char *line, FILE *out)
{
  struct command command = { .user = user, .out = out };
  if (!read_command (&command, line))
    return mps_wrong (&command, "too many arguments");
  if (strcmp (command.module, "quit") == 0)
    return user->privileged ? (mps.ended = true, 0) : mps_wrong (&command, "permission denied");
  const struct verb *const tables[]
      = { mps_server_verbs, mps_space_verbs, mps_client_verbs, mps_partition_verbs };
  for (unsigned i = 0; i < 4 && command.verb; i++)
    for (const struct verb *verb = tables[i]; verb->name; verb++)
      if (strcmp (verb->module, command.module) == 0 && strcmp (verb->name, command.verb) == 0)
        return verb->changes && !user->privileged ? mps_wrong (&command, "permission denied")
                                                  : verb->run (&command);
  return mps_wrong (&command, "unknown command '%s %s'", command.module,
                    command.verb ? command.verb : "");
}
