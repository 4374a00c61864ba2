/* open-node PATH...: opens each file for reading and writing, prints `PATH: ok` or the errno's
   name. A device rule that denies gives EPERM, an allowed node without a driver ENXIO.  */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static const char *
name_of (int error)
{
  switch (error)
    {
    case EPERM:
      return "EPERM";
    case EACCES:
      return "EACCES";
    case ENOENT:
      return "ENOENT";
    case ENXIO:
      return "ENXIO";
    case ENODEV:
      return "ENODEV";
    default:
      return strerror (error);
    }
}

int
main (int argc, char **argv)
{
  for (int i = 1; i < argc; i++)
    {
      int fd = open (argv[i], O_RDWR | O_CLOEXEC);
      printf ("%s: %s\n", argv[i], fd >= 0 ? "ok" : name_of (errno));
    }
  return 0;
}
