/* look-around SECONDS: for that long, tries to open for writing whatever program runs in the /proc
   that it sees and is not its own; prints the inode of each that it could reach at all, and "wrote"
   for one that it could open. "end" is the last line.  */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void
try_one (const char *pid, const struct stat *ours)
{
  char path[300];
  struct stat found;
  snprintf (path, sizeof path, "/proc/%s/exe", pid);
  int seen = open (path, O_PATH | O_CLOEXEC);
  if (seen < 0)
    return;
  if (fstat (seen, &found) == 0 && found.st_ino != ours->st_ino)
    {
      printf ("reached %lu\n", (unsigned long) found.st_ino);
      /* A program that runs refuses writers: once it has ended, the descriptor opens it.  */
      snprintf (path, sizeof path, "/proc/self/fd/%d", seen);
      for (int tries = 0; tries < 200; tries++)
        {
          int fd = open (path, O_WRONLY | O_CLOEXEC);
          if (fd >= 0)
            printf ("wrote %lu\n", (unsigned long) found.st_ino);
          if (fd >= 0 || errno != ETXTBSY)
            break;
          usleep (1000);
        }
      fflush (stdout);
    }
  close (seen);
}

int
main (int argc, char **argv)
{
  struct stat ours;
  time_t end = time (NULL) + (argc > 1 ? atoi (argv[1]) : 1);
  if (stat ("/proc/self/exe", &ours) != 0)
    return 1;
  puts ("begin");
  fflush (stdout);
  while (time (NULL) < end && access ("/tmp/enough", F_OK) != 0)
    {
      DIR *folder = opendir ("/proc");
      for (struct dirent *entry; folder && (entry = readdir (folder));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
          try_one (entry->d_name, &ours);
      if (folder)
        closedir (folder);
    }
  puts ("end");
  return 0;
}
