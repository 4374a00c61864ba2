/* Between multicast.c, which has the objects, and multicast_bind.c, which binds memory to them.

   Kernels here write no memory, so there are no bytes behind an object's addresses.  */

#pragma once

#include "virtual/vmm.h"

/* Memory of a device that is bound at an offset.  */
struct binding
{
  CUdevice device;
  size_t offset, bytes;
  struct physical *memory;
  struct binding *next;
};

struct multicast
{
  unsigned wanted; /* devices */
  unsigned team;   /* a bit for each that was added */
  struct binding *bindings;
};

/* The object of HANDLE with one more use, or NULL.  */
struct physical *softgpu_find_object (CUmemGenericAllocationHandle handle);
