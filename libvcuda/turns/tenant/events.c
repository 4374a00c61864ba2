/* Appends to the event log.  */

#include "tenant/events.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int folder = -1;

void
events_begin (const char *state_dir)
{
  folder = open (state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void
events_record (const char *kind, const char *id, const char *uuid, const char *text)
{
  char line[1024];
  struct timespec now;
  clock_gettime (CLOCK_REALTIME, &now);
  int length = snprintf (line, sizeof line,
                         "{\"time\": %lld.%06ld, \"from\": \"vcuda-turn-keeper\", \"kind\": \"%s\","
                         " \"allocation\": \"%s\", \"text\": \"%s\", \"gpu\": \"%s\"}\n",
                         (long long) now.tv_sec, now.tv_nsec / 1000, kind, id, text, uuid);
  if (folder < 0 || length >= (int) sizeof line)
    return;
  int fd = openat (folder, "events.jsonl", O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                   0640);
  if (fd < 0)
    return;
  /* One write appends the whole line, also beside other writers.  */
  if (write (fd, line, (size_t) length) != length)
    perror ("vcuda-turn-keeper: events.jsonl");
  close (fd);
}
