/* The list of a process's device memory, for the caller of a checkpoint to custom storage.

   From driver 615 on all device memory lies in files without a name (memfd), and so does the list
   of its ranges. The process's slot names the list's file. Only the process itself writes the list;
   another one reads it while the process is locked.  */

#pragma once

#include "driver/driver.h"

/* The first driver of CUDA 13.4, which adds custom storage. Source: cuda.h of 13.5.  */
#define CUSTOM_STORAGE_MAJOR 615

#define SOFTGPU_PARTS 32768

struct part
{
  _Atomic uint64_t bytes; /* 0: none is here */
  uint64_t offset;
  int32_t fd;
  uint32_t began; /* the index that its GPU had at the process's cuInit: see softgpu_slot.place */
};

struct parts
{
  _Atomic uint32_t used;   /* entries from here on are empty */
  _Atomic uint32_t missed; /* memory that is not in the list: the list is useless then */
  struct part part[SOFTGPU_PARTS];
};

/* Whether device memory has to be in the list.  */
bool softgpu_lists_parts (void);

/* BYTES of DEVICE's memory, mapped over AT if that is not NULL. *FD, *OFFSET: where in a file it
   is; FD is -1 where it is in none. NULL: the host has no memory.  */
void *softgpu_map_part (CUdevice device, size_t bytes, void *at, int *fd, uint64_t *offset);

/* Adds or removes a range of FD, which is in no other part.  */
void softgpu_list_part (CUdevice device, int fd, uint64_t offset, uint64_t bytes);
void softgpu_unlist_part (int fd, uint64_t offset);

/* The list of the process in SLOT, which this one sees as PID; NULL: it cannot be read, or is
   useless. *FD: its file, for softgpu_close_parts.  */
const struct parts *softgpu_open_parts (int pid, const struct softgpu_slot *slot, int *fd);
void softgpu_close_parts (const struct parts *parts, int fd);
