/* vcuda-container-runtime, the native front door.

   Engines call an OCI runtime about eleven times in a container's life, and most containers ask for
   no GPU: all of these calls are passed on to runc or crun by one exec. Only a create, run or
   restore whose config.json may hold a request starts Python (oci/vcuda_oci/start/main.py). "May"
   is a search for words in the raw text; whether it does, Python decides. The delete of a container
   that holds a share is waited for, and the share given back (release.h); that of one which is
   deleted already is answered from here (gone.h).

   The paths are compiled in, so that no variable of anybody's environment decides what runs as
   root: VCUDA_CONFIG, VCUDA_PYTHON, VCUDA_PYTHON_PATH.  */

#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arguments.h"
#include "door.h"
#include "gone.h"
#include "release.h"
#include "report.h"
#include "settings.h"
#include "trusted.h"
#include "whole.h"

/* Where a runtime is looked for after PATH. CRI-O's packages keep theirs in a folder of its own. */
#define DEFAULT_PATH                                                                               \
  "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/libexec/crio"
#define START(module)                                                                              \
  "import sys; sys.path.insert(0, '" VCUDA_PYTHON_PATH "'); import vcuda_oci.packed; "             \
  "from vcuda_oci." module " import main; main(sys.argv[1:])"

static bool
is_ourselves (const char *path)
{
  struct stat ours, theirs;
  /* The kernel's word for how we were called; procfs would first make up a folder of ours.  */
  const char *called = (const char *) getauxval (AT_EXECFN);
  return ((called && stat (called, &ours) == 0) || stat ("/proc/self/exe", &ours) == 0)
         && stat (path, &theirs) == 0 && ours.st_dev == theirs.st_dev
         && ours.st_ino == theirs.st_ino;
}

/* `name` below the first folder of the colon-separated `folders` that has it executable.  */
static bool
find_in (const char *folders, const char *name, char found[PATH_MAX])
{
  for (const char *end; folders && *folders; folders = *end ? end + 1 : end)
    {
      end = strchrnul (folders, ':');
      int length = snprintf (found, PATH_MAX, "%.*s/%s", (int) (end - folders), folders, name);
      if (folders[0] == '/' && length < PATH_MAX && access (found, X_OK) == 0)
        return true;
    }
  return false;
}

static bool
find_program (const char *name, char found[PATH_MAX])
{
  return find_in (getenv ("PATH"), name, found) || find_in (DEFAULT_PATH, name, found);
}

/* The full path of the runtime that config.toml names. runc, the default, stands for crun on a host
   that has only crun. runtime_hook/vcuda_hook/live/low_level.py finds the same.  */
static const char *
low_level_runtime (const struct whole *config)
{
  static char path[PATH_MAX], value[PATH_MAX];
  const char *name = setting (config, "runtime", "runc", value);
  if (name[0] == '/')
    strcpy (path, name);
  else if (!find_program (name, path)
           && (strcmp (name, "runc") != 0 || !find_program ("crun", path)))
    die (name, "no such runtime in PATH", "install runc or crun, or set runtime in config.toml");
  if (is_ourselves (path))
    die (path, "the low-level runtime is this wrapper itself", "set runtime in " VCUDA_CONFIG);
  return path;
}

/* The same for letters behind one dash, as crun takes -db DIR and -bDIR.  */
static const char *
letter_option (const char *word, const char **value)
{
  if (word[1] == '-')
    return NULL;
  const char *letter = word + 1 + strspn (word + 1, "d");
  *value = *letter && letter[1] ? letter + 1 : NULL;
  return *letter == 'b' ? "bundle" : *letter == 'f' ? "f" : NULL;
}

/* The config.json that this command line creates a container from; false if it creates none.  */
static bool
creates_from (char **words, char path[PATH_MAX])
{
  const char *folder = ".", *file = "config.json", *name, *value;
  struct global_options said = { 0 };
  words = read_global_options (words, &said);
  const char *verb = *words;
  if (!verb || (strcmp (verb, "create") && strcmp (verb, "run") && strcmp (verb, "restore")))
    return false;
  while (*++words && strcmp (*words, "--") != 0)
    {
      if (words[0][0] != '-' || !words[0][1])
        continue;
      name = option_name (*words, create_values, &value);
      if (!name)
        name = letter_option (*words, &value);
      if (!name)
        continue;
      if (!value && words[1])
        value = *++words;
      if (strcmp (name, "bundle") == 0)
        folder = value && *value ? value : ".";
      else if (strcmp (name, "config") == 0 || strcmp (name, "f") == 0)
        file = value ? value : "";
    }
  /* crun reads any other file from where it was called, not from the bundle.  */
  if (strcmp (file, "config.json") != 0)
    return snprintf (path, PATH_MAX, "%s", file) < PATH_MAX;
  return snprintf (path, PATH_MAX, "%s/%s", folder, file) < PATH_MAX;
}

/* The regular file at `path`; empty where there is none that can be opened.  */
static struct whole
read_whole (const char *path, char room[ROOM_BYTES])
{
  struct whole none = { "", 0, true };
  struct stat status;
  /* Check the type before opening: to open a FIFO waits for a writer, or lets one go on that waits
     for its reader.  */
  if (stat (path, &status) != 0 || !S_ISREG (status.st_mode) || status.st_size == 0)
    return none;
  int fd = open (path, O_RDONLY | O_CLOEXEC);
  return fd < 0 ? none : read_open (fd, room);
}

/* A letter or digit written as \u00XX: no engine does that, and it could hide a word from us.  */
static bool
hides_ascii (const char *text, size_t size)
{
  const char *end = text + size;
  while ((text = memmem (text, (size_t) (end - text), "\\u00", 4)) && text + 6 <= end)
    {
      char digits[3] = { text[4], text[5], 0 };
      int code = (int) strtol (digits, NULL, 16);
      if (isalnum (code) || code == '_')
        return true;
      text += 4;
    }
  return false;
}

/* Whether the text of a config.json may hold a request.  */
static bool
may_hold_request (const char *text, size_t size)
{
  static const char *const words[] = { "vcuda", "VCUDA", "NVIDIA_VISIBLE_DEVICES" };
  bool may = hides_ascii (text, size);
  for (size_t i = 0; i < sizeof words / sizeof *words && !may; i++)
    may = memmem (text, size, words[i], strlen (words[i])) != NULL;
  return may;
}

/* The same of the file. One that we can't read is the runtime's to complain of, and what was not
   read may hold anything.  */
static bool
may_ask (const char *path)
{
  static char room[ROOM_BYTES];
  struct whole config = read_whole (path, room);
  return !config.is_whole || may_hold_request (config.text, config.size);
}

static _Noreturn void
become (const char *runtime, char **argv)
{
  argv[0] = (char *) runtime;
  execv (runtime, argv);
  char what[128];
  snprintf (what, sizeof what, "cannot be run: %s", strerror (errno));
  die (runtime, what, "install it, or set runtime in config.toml");
}

/* The status that `program` ends with; -1: it cannot be started from here. Whoever kills us kills
   it as well, as if it stood here.  */
static int
run_to_end (const char *program, char **argv)
{
  /* Of an ignored child no status would come.  */
  void (*before) (int) = signal (SIGCHLD, SIG_DFL);
  pid_t ours = getpid (), child = fork ();
  if (child == 0)
    {
      signal (SIGCHLD, before);
      prctl (PR_SET_PDEATHSIG, SIGKILL);
      if (getppid () != ours)
        _exit (1);
      become (program, argv);
    }
  int status = -1;
  while (child > 0 && waitpid (child, &status, 0) < 0 && errno == EINTR)
    continue;
  signal (SIGCHLD, before);
  return status;
}

/* The container that this command line deletes, and how its runtime was told to find it; "": none,
   or nothing that could hold a share.  */
static const char *
deletes (char **words, char root[PATH_MAX])
{
  struct global_options said = { 0 };
  words = read_global_options (words, &said);
  if (!*words || strcmp (*words, "delete") != 0)
    return "";
  while (*++words && words[0][0] == '-' && strcmp (*words, "--") != 0)
    continue;
  if (*words && strcmp (*words, "--") == 0)
    words++;
  char here[PATH_MAX] = "";
  bool is_relative = said.root && *said.root && *said.root != '/';
  if (is_relative && !getcwd (here, sizeof here))
    return "";
  int length = snprintf (root, PATH_MAX, "%s%s%s", here, is_relative ? "/" : "",
                         said.root ? said.root : "");
  return *words && length < PATH_MAX ? *words : "";
}

/* Ends as the low-level runtime did: what becomes of the share is not the engine's business.  */
static _Noreturn void
delete_and_release (const char *runtime, char **argv, const struct held *held)
{
  report_allocation = held->id;
  int status = run_to_end (runtime, argv);
  if (status == -1)
    become (runtime, argv); /* a sweep finds what it held */
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

/* Ends as the low-level runtime, with the bundle as it has to be, or with the line that refuses. */
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
  enum door_answer said = ask_door (state_dir, words + ours - 2, answer);
  report_allocation = said == DOOR_CLOSED ? "" : answer + strlen (answer) + 1;
  switch (said)
    {
    case DOOR_DONE:
      become (runtime, argv);
    case DOOR_REFUSED:
      die_with (answer + 1);
    case DOOR_CLOSED:
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
  const struct whole *config = settings_at (VCUDA_CONFIG, &why);
  if (!config)
    die_with (why.line);
  const char *runtime = low_level_runtime (config);
  bool asks = argc > 0 && creates_from (argv + 1, path) && may_ask (path);
  held.id = argc > 0 && !asks ? deletes (argv + 1, path) : "";
  if (!asks && !*held.id)
    become (runtime, argv);
  held.state_dir = setting (config, "state-dir", DEFAULT_STATE_DIR, value);
  if (asks)
    share_and_become (runtime, argc, argv, held.state_dir);
  if (find_record (&held, runtime, path))
    delete_and_release (runtime, argv, &held);
  if (deletes_nobody (argv + 1, runtime))
    return 0;
  become (runtime, argv);
}
