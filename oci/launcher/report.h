/* How an error of the front door reaches whoever started the container: one line on stderr, and in
   runc's --log file in its --log-format, since containerd shows its user the last line of that file
   and nothing else. oci/vcuda_oci/start/report.py does the same for what comes after.  */

#ifndef VCUDA_REPORT_H
#define VCUDA_REPORT_H

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "arguments.h"

#define PROGRAM "vcuda-container-runtime"

/* The command line after the program's name.  */
static char **report_words;

/* The allocation's id, with which the line ends, and which the log has beside it; "": none.  */
static const char *report_allocation = "";

/* TEXT without what could end a string.  */
static void
make_safe (const char *text, char *safe, size_t size)
{
  size_t length = 0;
  for (; *text && length < size - 1; text++)
    if (isprint ((unsigned char) *text) && *text != '"' && *text != '\\')
      safe[length++] = *text;
  safe[length] = '\0';
}

/* What logrus' two formats make of the line: ENTRY and how long it is.  */
static size_t
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
  /* crun takes these forms; the system's log is not written from here.  */
  if (strncmp (path, "journald:", 9) == 0 || strncmp (path, "syslog:", 7) == 0)
    return;
  if (strncmp (path, "file:", 5) == 0)
    path += 5;
  time_t seconds = time (NULL);
  strftime (now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime (&seconds));
  size_t size = log_entry (format, now, line, entry);
  int fd = open (path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  /* A log that can't be written must not hide the error, which stands on stderr already.  */
  if (fd >= 0 && write (fd, entry, size) == (ssize_t) size)
    close (fd);
}

/* What the engine says before the verb, as far as it matters here: NULL where it is not said.
   says_more: something that changes what the runtime does, or tells.  */
struct global_options
{
  const char *root, *log, *format;
  bool says_more;
};

/* Where the global options end, at the verb if there is one.  */
static char **
read_global_options (char **words, struct global_options *said)
{
  for (; *words && words[0][0] == '-' && words[0][1]; words++)
    {
      const char *value, *name = option_name (*words, global_values, &value);
      if (strcmp (*words, "--") == 0)
        return words + 1;
      if (name && !value && words[1])
        value = *++words;
      if (name && strcmp (name, "log") == 0)
        said->log = value ? value : "";
      else if (name && strcmp (name, "log-format") == 0)
        said->format = value ? value : "";
      else if (name && strcmp (name, "root") == 0)
        said->root = value ? value : "";
      else if (name || strcmp (*words, "--systemd-cgroup") != 0)
        said->says_more = true;
    }
  return words;
}

/* MESSAGE is where, what and mend in one.  */
static _Noreturn void
die_with (const char *message)
{
  char line[2 * PATH_MAX], id[256];
  struct global_options said = { 0 };
  make_safe (report_allocation, id, sizeof id);
  snprintf (line, sizeof line, *id ? PROGRAM ": %s (allocation %s)" : PROGRAM ": %s", message, id);
  fprintf (stderr, "%s\n", line);
  read_global_options (report_words, &said);
  if (said.log)
    write_log (said.log, said.format ? said.format : "text", line);
  exit (1);
}

static _Noreturn void
die (const char *where, const char *what, const char *mend)
{
  char message[2 * PATH_MAX];
  snprintf (message, sizeof message, "%s: %s; %s", where, what, mend);
  die_with (message);
}

#endif
