/* The base names of the driver's functions: what cuGetProcAddress is asked for.  */

#ifndef VCUDA_NAMES_H
#define VCUDA_NAMES_H

enum vcuda_name
{
  VCUDA_NAME_NEWER,  /* our headers don't know it */
  VCUDA_NAME_PASSED, /* no version of it is ours */
  VCUDA_NAME_OURS,   /* some version of it is */
};

enum vcuda_name vcuda_name_of (const char *symbol);

#endif
