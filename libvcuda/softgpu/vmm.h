/* Physical memory that cuMemCreate makes and cuMemMap shows.  */

#ifndef SOFTGPU_VMM_H
#define SOFTGPU_VMM_H

#include "memory.h"

#define VMM_GRANULE ((size_t) 2 << 20)

struct physical
{
  uint32_t kind;       /* PHYSICAL */
  unsigned references; /* of handles */
  unsigned mappings;
  size_t bytes;
  CUdevice device; /* whose account it is on; -1: the host's memory, or another process's */
  int fd;          /* its own, where it can be exported or was imported; else the store */
  bool own_fd;
  uint64_t offset;
  CUmemAllocationProp properties;
};

/* The record behind HANDLE with one more reference or mapping, or NULL.  */
struct physical *softgpu_physical (CUmemGenericAllocationHandle handle);
void softgpu_physical_mapped (struct physical *physical);
void softgpu_physical_unmapped (struct physical *physical);

#endif
