/* vcuda-container-runtime, the launcher.

   Engines call an OCI runtime about eleven times in a container's life, and most containers ask for
   no GPU: the launcher passes all of these calls on to runc or crun by one exec.

   Two calls need Python. A create, run or restore may have a request in config.json: the launcher
   searches the raw text for it (runtime/config_json.c), and Python decides
   (oci/vcuda_oci/start/main.py). At the delete of a container that has an allocation record, the
   launcher waits for the runtime, and then Python releases the share
   (oci/vcuda_oci/start/after_delete.py). For both the launcher asks the claim socket first, and
   starts Python only where it does not answer.

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

#include "handover/arguments.h"
#include "handover/claim_socket.h"
#include "handover/error.h"
#include "handover/exec.h"
#include "runtime/config_json.h"
#include "runtime/missing_container.h"
#include "settings/settings.h"

#define START(module)                                                                              \
  "import sys; sys.path.insert(0, '" VCUDA_PYTHON_PATH "'); import vcuda_oci.packed; "             \
  "from vcuda_oci." module " import main; main(sys.argv[1:])"

/* Whether the container has an allocation record. Its name is all that the launcher knows of it:
   <state-dir>/allocations/<id>.json (oci/vcuda_oci/ledger/ledger.py).  */
static bool
has_record (const char *state_dir, const char *id)
{
  char path[PATH_MAX];
  return *id && *id != '.' && !strchr (id, '/')
         && snprintf (path, sizeof path, "%s/allocations/%s.json", state_dir, id) < PATH_MAX
         && access (path, F_OK) == 0;
}

/* Releases the share, unless the container still exists.  */
static void
release_share (const char *state_dir, const char *id)
{
  static char answer[PATH_MAX];
  /* An empty runtime: this is not a runtime's command line.  */
  const char *const words[] = { VCUDA_CONFIG, "", "delete", id, NULL };
  const char *const python[] = { VCUDA_PYTHON, "-I", "-S", "-B", "-c", START ("start.after_delete"),
                                 VCUDA_CONFIG, id,   NULL };
  switch (ask_claim_socket (state_dir, words, answer))
    {
    case SOCKET_DONE:
      break;
    case SOCKET_REFUSED:
      print_refusal ("vcuda-container-runtime", answer);
      break;
    case SOCKET_CLOSED:
      run_to_end (VCUDA_PYTHON, (char **) python);
    }
}

/* Exits with the low-level runtime's status, whether or not the share could be released.  */
static _Noreturn void
delete_and_release (const char *runtime, char **argv, const char *state_dir, const char *id)
{
  report_allocation = id;
  int status = run_to_end (runtime, argv);
  if (status == -1)
    become (runtime, argv);       /* the sweep releases the share */
  if (has_record (state_dir, id)) /* a poststop hook may have released it */
    release_share (state_dir, id);
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
  static struct distrust why;
  report_words = argc ? argv + 1 : argv;
  const struct file_text *config = settings_at (VCUDA_CONFIG, &why);
  if (!config)
    die_with (why.line);
  const char *runtime = low_level_runtime (config);
  bool may_request = argc > 0 && creates_from (argv + 1, path) && file_may_hold_request (path);
  const char *deleted = argc > 0 && !may_request ? deleted_container (argv + 1) : "";
  if (!may_request && !*deleted)
    become (runtime, argv);
  const char *state_dir = setting (config, "state-dir", DEFAULT_STATE_DIR, value);
  if (may_request)
    share_and_become (runtime, argc, argv, state_dir);
  if (has_record (state_dir, deleted))
    delete_and_release (runtime, argv, state_dir, deleted);
  if (deletes_missing_container (argv + 1, runtime))
    return 0;
  become (runtime, argv);
}
