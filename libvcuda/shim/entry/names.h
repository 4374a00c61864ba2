/* The base names of the driver's functions, which programs pass to cuGetProcAddress.  */

#pragma once

enum vcuda_name
{
  VCUDA_NAME_NEWER,  /* not in the headers that the shim is built with */
  VCUDA_NAME_PASSED, /* every version of it is passed on */
  VCUDA_NAME_HOOKED, /* some version of it has a policy of the shim */
};

enum vcuda_name vcuda_name_of (const char *symbol);
