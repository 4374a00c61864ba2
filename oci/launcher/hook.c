/* vcuda-container-hook, in front of runtime_hook/vcuda_hook/hook.py.

   runc hands a hook without an env of its own the image's variables. Static, so that no LD_PRELOAD
   of an image is loaded here, and with an environment of its own for Python.  */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START                                                                                      \
  "import sys; sys.path.insert(0, '" VCUDA_PYTHON_PATH "'); "                                      \
  "from vcuda_hook.hook import main; main()"

int
main (int argc, char **argv)
{
  static char *const environment[]
      = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL };
  static const char *const python[] = { VCUDA_PYTHON, "-I", "-S", "-B", "-c", START };
  size_t ours = sizeof python / sizeof *python;
  const char **words = calloc (ours + (size_t) argc + 1, sizeof *words);
  if (words)
    {
      memcpy (words, python, sizeof python);
      for (int i = 1; i < argc; i++)
        words[ours + (size_t) i - 1] = argv[i];
      execve (VCUDA_PYTHON, (char **) words, environment);
    }
  fprintf (stderr, "vcuda-container-hook: %s: %s; install python3\n", VCUDA_PYTHON,
           strerror (errno));
  return 1;
}
