/* Reports an error of the launcher: one line on stderr, and in runc's --log file in its
   --log-format, because containerd shows only the last line of that file.
   oci/vcuda_oci/start/report.py does the same for errors of Python.  */

#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "handover/arguments.h"
#include "handover/error.h"

#define PROGRAM "vcuda-container-runtime"

char **report_words;
const char *report_allocation = "";

/* Copies TEXT without characters that could end a string.  */
static void
make_safe (const char *text, char *safe, size_t size)
{
  size_t length = 0;
  for (; *text && length < size - 1; text++)
    if (isprint ((unsigned char) *text) && *text != '"' && *text != '\\')
      safe[length++] = *text;
  safe[length] = '\0';
}

size_t
log_entry (const char *format, const char *now, const char *line, char entry[2 * PATH_MAX])
{
  char safe[PATH_MAX], id[256], field[300] = "";
  bool json = strcmp (format, "json") == 0;
  make_safe (line, safe, sizeof safe);
  make_safe (report_allocation, id, sizeof id);
  if (*id)
    snprintf (field, sizeof field, json ? ",\"allocation\":\"%s\"" : " allocation=\"%s\"", id);
  const char *form = json ? "{\"time\":\"%s\",\"level\":\"error\",\"msg\":\"%s\"%s}\n"
                          : "time=\"%s\" level=error msg=\"%s\"%s\n";
  return (size_t) snprintf (entry, 2 * PATH_MAX, form, now, safe, field);
}

static void
write_log (const char *path, const char *format, const char *line)
{
  char now[32], entry[2 * PATH_MAX];
  /* crun writes to the system's log for these forms; the launcher does not.  */
  if (strncmp (path, "journald:", 9) == 0 || strncmp (path, "syslog:", 7) == 0)
    return;
  if (strncmp (path, "file:", 5) == 0)
    path += 5;
  time_t seconds = time (NULL);
  strftime (now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime (&seconds));
  size_t size = log_entry (format, now, line, entry);
  int fd = open (path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  /* The error is already on stderr, so a failure to log it is ignored.  */
  if (fd >= 0 && write (fd, entry, size) == (ssize_t) size)
    close (fd);
}

_Noreturn void
die_with (const char *message)
{
  char line[2 * PATH_MAX], id[256];
  struct global_options options = { 0 };
  make_safe (report_allocation, id, sizeof id);
  snprintf (line, sizeof line, *id ? PROGRAM ": %s (allocation %s)" : PROGRAM ": %s", message, id);
  fprintf (stderr, "%s\n", line);
  read_global_options (report_words, &options);
  if (options.log)
    write_log (options.log, options.format ? options.format : "text", line);
  exit (1);
}

_Noreturn void
die (const char *where, const char *what, const char *hint)
{
  char message[2 * PATH_MAX];
  snprintf (message, sizeof message, "%s: %s; %s", where, what, hint);
  die_with (message);
}
