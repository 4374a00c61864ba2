/* vcuda-container-hook: starts Python for an OCI hook (runtime_hook/vcuda_hook/hooks/main.py).

   runc passes the image's environment variables to a hook that has no env of its own. So this
   program is linked statically, which keeps the image's LD_PRELOAD out, and gives Python a fixed
   environment. Where the claim socket answers, two hooks start no Python: poststop, and that of our
   CDI devices, unless it has more to do than run one command (start/cdi_edits.py).  */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "handover/claim_socket.h"
#include "handover/exec.h"
#include "hooks/mount_points.h"
#include "hooks/streams.h"
#include "settings/settings.h"
#include "settings/trusted.h"

#ifndef SYS_pidfd_open
#  define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#  define SYS_close_range 436
#endif

#define START                                                                                      \
  "import sys; sys.path.insert(0, '" VCUDA_PYTHON_PATH "'); import vcuda_oci.packed; "             \
  "from vcuda_hook.hooks.main import main; main()"

/* Replaces standard input by a file with the same content, so that it can be read twice. Returns
   its size; -1: standard input was left alone, or could not be read to its end.  */
static ssize_t
buffer_input (void)
{
  static char chunk[65536];
  ssize_t got, size = 0;
  for (int stream = 0; stream <= 2; stream++)
    if (fcntl (stream, F_GETFD) < 0)
      return -1; /* the file would get this number */
  int file = isatty (0) ? -1 : memfd_create ("state", MFD_CLOEXEC);
  if (file < 0)
    return -1;
  while ((got = read (0, chunk, sizeof chunk)) > 0 && write (file, chunk, (size_t) got) == got)
    size += got;
  if (got == 0 && lseek (file, 0, SEEK_SET) == 0 && dup2 (file, 0) == 0)
    return size;
  close (file);
  return -1;
}

/* Sends the claim socket `verb`, `allocation` unless it is NULL, and the container's state from
   standard input, which stays readable from its start.  */
static enum socket_answer
ask (const char *config, const char *verb, const char *allocation, char answer[PATH_MAX])
{
  static char state[PACKET_BYTES], folder[PATH_MAX];
  static struct distrust why;
  const struct file_text *settings = settings_at (config, &why);
  ssize_t size = settings ? buffer_input () : -1; /* Python reports bad settings */
  if (size <= 0 || (size_t) size >= sizeof state || pread (0, state, (size_t) size, 0) != size
      || memchr (state, 0, (size_t) size))
    return SOCKET_CLOSED;
  /* An empty runtime: this is a hook's request.  */
  const char *words[6] = { config, "", verb }, **next = words + 3;
  if (allocation)
    *next++ = allocation;
  *next = state;
  const char *state_dir = setting (settings, "state-dir", DEFAULT_STATE_DIR, folder);
  return ask_claim_socket (state_dir, words, answer);
}

/* Asks the claim socket to release the container's share. False: Python has to do it.  */
static bool
release_by_socket (const char *config, const char *allocation)
{
  static char answer[PATH_MAX];
  enum socket_answer reply = ask (config, "poststop", allocation, answer);
  if (reply == SOCKET_REFUSED)
    print_refusal ("vcuda-container-hook", answer);
  return reply != SOCKET_CLOSED;
}

/* Has the claim socket clean up after a container with our CDI devices that has stopped, or runs
   the command that it answers for one that is being created. False: Python has to do it.  */
static bool
edit_by_socket (const char *config)
{
  static char answer[PATH_MAX], *command[8];
  if (ask (config, "cdi", NULL, answer) != SOCKET_DONE)
    return false;
  size_t count = 0;
  const char *id = answer + strlen (answer) + 1;
  char *word = (char *) id + strlen (id) + 1;
  for (; word < answer + sizeof answer && *word && count < 7; word += strlen (word) + 1)
    command[count++] = word;
  if (word < answer + sizeof answer && *word)
    return false; /* part of a command is another one */
  if (count == 0)
    return true;
  static char *none[] = { NULL };
  environ = none;
  if (run_to_end (command[0], command) == 0)
    return true;
  lseek (0, 0, SEEK_SET); /* Python repeats it and reports the failure to the engine */
  return false;
}

static int
start_python (const char *config, char **words)
{
  static char *const environment[]
      = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL };
  const char *const python[] = { VCUDA_PYTHON, "-I", "-S", "-B", "-c", START, "--config", config };
  size_t ours = sizeof python / sizeof *python, count = 0;
  while (words[count])
    count++;
  const char **line = calloc (ours + count + 1, sizeof *line);
  if (line)
    {
      memcpy (line, python, sizeof python);
      memcpy (line + ours, words, count * sizeof *words);
      execve (VCUDA_PYTHON, (char **) line, environment);
    }
  fprintf (stderr, "vcuda-container-hook: %s: %s; install python3\n", VCUDA_PYTHON,
           strerror (errno));
  return 1;
}

int
main (int argc, char **argv)
{
  if (!leave_files_of_host ())
    return 1;
  const char *config = VCUDA_CONFIG;
  char **words = argc ? argv + 1 : argv;
  if (words[0] && strcmp (words[0], "--config") == 0 && words[1])
    {
      config = words[1];
      words += 2;
    }
  /* Called by vcuda_oci/guest/mount_points.py, with the note on standard input.  */
  if (words[0] && strcmp (words[0], "removeMountPoints") == 0 && (!words[1] || !words[2]))
    {
      int pidfd = -1;
      if (words[1])
        {
          syscall (SYS_close_range, 3, ~0U, 0); /* what the runtime left open for its hooks */
          pidfd = (int) syscall (SYS_pidfd_open, atoi (words[1]), 0);
          if (pidfd < 0)
            return 0; /* before Linux 5.3 */
        }
      remove_mount_points (0, pidfd);
      return 0;
    }
  bool releases = words[0] && strcmp (words[0], "poststop") == 0 && (!words[1] || !words[2]);
  if (releases && release_by_socket (config, words[1] ? words[1] : ""))
    return 0;
  if (words[0] && strcmp (words[0], "cdi") == 0 && !words[1] && edit_by_socket (config))
    return 0;
  return start_python (config, words);
}
