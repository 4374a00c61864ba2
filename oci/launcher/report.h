/* How an error of the front door reaches whoever started the container: one line on stderr, and in
   runc's --log file in its --log-format, since containerd shows its user the last line of that file
   and nothing else. oci/vcuda_oci/report.py does the same for what comes after.  */

#ifndef VCUDA_REPORT_H
#define VCUDA_REPORT_H

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "arguments.h"

#define PROGRAM "vcuda-container-runtime"

/* The command line after the program's name.  */
static char **report_words;

/* What logrus' two formats make of the line. A character that could end the string is left out.  */
static void
write_log (const char *path, const char *format, const char *line)
{
  char now[32], safe[PATH_MAX], entry[2 * PATH_MAX];
  size_t length = 0;
  /* crun takes these forms; the system's log is not written from here.  */
  if (strncmp (path, "journald:", 9) == 0 || strncmp (path, "syslog:", 7) == 0)
    return;
  if (strncmp (path, "file:", 5) == 0)
    path += 5;
  for (; *line && length < sizeof safe - 1; line++)
    if (isprint ((unsigned char) *line) && *line != '"' && *line != '\\')
      safe[length++] = *line;
  safe[length] = '\0';
  time_t seconds = time (NULL);
  strftime (now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime (&seconds));
  const char *json = "{\"time\":\"%s\",\"level\":\"error\",\"msg\":\"%s\"}\n";
  const char *text = "time=\"%s\" level=error msg=\"%s\"\n";
  int size = snprintf (entry, sizeof entry, strcmp (format, "json") == 0 ? json : text, now, safe);
  int fd = open (path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  /* A log that can't be written must not hide the error, which stands on stderr already.  */
  if (fd >= 0 && write (fd, entry, (size_t) size) == size)
    close (fd);
}

/* MESSAGE is where, what and mend in one.  */
static _Noreturn void
die_with (const char *message)
{
  char line[2 * PATH_MAX];
  const char *log = NULL, *format = "text", *value;
  snprintf (line, sizeof line, PROGRAM ": %s", message);
  fprintf (stderr, "%s\n", line);
  for (char **word = report_words; *word && **word == '-'; word++)
    {
      const char *name = option_name (*word, global_values, &value);
      if (name && !value && word[1])
        value = *++word;
      if (name && value && strcmp (name, "log") == 0)
        log = value;
      else if (name && value && strcmp (name, "log-format") == 0)
        format = value;
    }
  if (log)
    write_log (log, format, line);
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
