/* set-attributes PATH: gives a file one extended attribute after the other, for ever.  */
#include <stdio.h>
#include <sys/xattr.h>

int
main (int argc, char **argv)
{
  static char value[16384];
  char name[32];
  for (unsigned n = 0; argc == 2; n++)
    {
      snprintf (name, sizeof name, "user.%u", n % 4096);
      setxattr (argv[1], name, value, sizeof value, 0);
    }
  return 1;
}
