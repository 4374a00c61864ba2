/* vcuda-container-runtime, the launcher.

   Engines call an OCI runtime about eleven times in a container's life, and most containers ask for
   no GPU: all of these calls are passed on to runc or crun by one exec. Only a create, run or
   restore that may hold a request in config.json starts Python (oci/vcuda_oci/start/main.py). The
   launcher only searches the raw text (config_json.c); Python decides. At the delete of a container
   with a share the launcher waits for the runtime and releases the share (release.c).

   The paths are compiled in, so that no environment variable decides what runs as root:
   VCUDA_CONFIG, VCUDA_PYTHON, VCUDA_PYTHON_PATH.  */

#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arguments.h"
#include "claim_socket.h"
#include "config_json.h"
#include "error.h"
#include "exec.h"
#include "missing_container.h"
#include "release.h"
#include "settings.h"

#define START(module)                                                                              \
  "import sys; sys.path.insert(0, '" VCUDA_PYTHON_PATH "'); import vcuda_oci.packed; "             \
  "from vcuda_oci." module " import main; main(sys.argv[1:])"

/* Exits with the low-level runtime's status, whether or not the share could be released.  */
static _Noreturn void
delete_and_release (const char *runtime, char **argv, const struct held *held)
{
  report_allocation = held->id;
  int status = run_to_end (runtime, argv);
  if (status == -1)
    become (runtime, argv); /* the sweep releases the share */
  if (status != 0 || !held->is_plain || !release (held))
    {
      const char *python[]
          = { VCUDA_PYTHON, "-I",     "-S", "-B", "-c", START ("start.after_delete"),
              VCUDA_CONFIG, held->id, NULL };
      run_to_end (VCUDA_PYTHON, (char **) python);
    }
  if (WIFSIGNALED (status))
    {
      signal (WTERMSIG (status), SIG_DFL);
      raise (WTERMSIG (status));
    }
  exit (WIFEXITED (status) ? WEXITSTATUS (status) : 1);
}

/* Gives the container its share and becomes the low-level runtime, or exits with the error line of
   a refusal.  */
static _Noreturn void
share_and_become (const char *runtime, int argc, char **argv, const char *state_dir)
{
  static char answer[PATH_MAX];
  const char *python[]
      = { VCUDA_PYTHON, "-I", "-S", "-B", "-c", START ("start.main"), VCUDA_CONFIG, runtime };
  size_t ours = sizeof python / sizeof *python;
  const char **words = calloc (ours + (size_t) argc, sizeof *words);
  if (!words)
    die ("memory", strerror (errno), "free some");
  memcpy (words, python, sizeof python);
  memcpy (words + ours, argv + 1, (size_t) argc * sizeof *words);
  enum socket_answer reply = ask_claim_socket (state_dir, words + ours - 2, answer);
  report_allocation = reply == SOCKET_CLOSED ? "" : answer + strlen (answer) + 1;
  switch (reply)
    {
    case SOCKET_DONE:
      become (runtime, argv);
    case SOCKET_REFUSED:
      die_with (answer + 1);
    case SOCKET_CLOSED:
      break;
    }
  execv (VCUDA_PYTHON, (char **) words);
  die (VCUDA_PYTHON, strerror (errno), "install python3");
}

int
main (int argc, char **argv)
{
  static char path[PATH_MAX], value[PATH_MAX];
  static struct held held;
  static struct distrust why;
  report_words = argc ? argv + 1 : argv;
  const struct file_text *config = settings_at (VCUDA_CONFIG, &why);
  if (!config)
    die_with (why.line);
  const char *runtime = low_level_runtime (config);
  bool asks = argc > 0 && creates_from (argv + 1, path) && file_may_hold_request (path);
  held.id = argc > 0 && !asks ? deleted_container (argv + 1, path) : "";
  if (!asks && !*held.id)
    become (runtime, argv);
  held.state_dir = setting (config, "state-dir", DEFAULT_STATE_DIR, value);
  if (asks)
    share_and_become (runtime, argc, argv, held.state_dir);
  if (find_record (&held, runtime, path))
    delete_and_release (runtime, argv, &held);
  if (deletes_missing_container (argv + 1, runtime))
    return 0;
  become (runtime, argv);
}
