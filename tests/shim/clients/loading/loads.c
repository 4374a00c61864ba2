/* loads NAME...: opens each library in turn, as programs do, with a CUDA call or an NVML call in
   between, and prints for each whether it is the shim. Not linked with -lcuda.  */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

int
main (int argc, char **argv)
{
  printf ("[");
  for (int i = 1; i < argc; i++)
    {
      void *library = dlopen (argv[i], RTLD_NOW | RTLD_LOCAL);
      struct link_map *map = NULL;
      int rc = -1;
      if (library)
        {
          int (*cuda) (unsigned) = (int (*) (unsigned)) dlsym (library, "cuInit");
          int (*nvml) (void) = (int (*) (void)) dlsym (library, "nvmlInit_v2");
          dlinfo (library, RTLD_DI_LINKMAP, &map);
          /* Only the shim has both families.  */
          int both = cuda && nvml;
          rc = strstr (argv[i], "libnvidia-ml") ? (nvml ? nvml () : -2) : (cuda ? cuda (0) : -2);
          printf ("%s{\"name\": \"%s\", \"file\": \"%s\", \"shim\": %s, \"rc\": %d}",
                  i > 1 ? ", " : "", argv[i], map->l_name, both ? "true" : "false", rc);
        }
      else
        printf ("%s{\"name\": \"%s\", \"error\": \"%s\"}", i > 1 ? ", " : "", argv[i], dlerror ());
    }
  printf ("]\n");
  return 0;
}
