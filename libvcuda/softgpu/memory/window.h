/* Memory of other processes, and of files, mapped into this process and not counted as its own.  */

#pragma once

#include "memory/store.h"

/* Which call closes a window.  */
enum window_kind
{
  OPENED_HANDLE = 1, /* cuIpcCloseMemHandle */
  FREED = 2,         /* cuMemFree, as pointers of imported pools and external memory are */
};

/* Where memory of one process is for the others: what the 64 bytes of an IPC handle hold.  */
struct place
{
  uint32_t magic;
  uint32_t pid;
  int32_t fd;
  uint32_t gpu; /* index in the state file */
  uint64_t offset;
  uint64_t bytes;
  uint32_t slot;
  uint32_t generation;
};
#define PLACE_MAGIC 0x43504953u

/* Where the memory around ADDRESS is; false when it can't be shared.  */
bool softgpu_place_of (uintptr_t address, struct place *place);

/* Where OFFSET of this process's store is.  */
struct place softgpu_place_in_store (unsigned gpu, uint64_t offset, uint64_t bytes);

/* Whether PLACE is in this process; and whether its process is alive.  */
bool softgpu_own_place (const struct place *place);
bool softgpu_live_place (const struct place *place);

/* Maps BYTES of FD from OFFSET on.  */
CUresult softgpu_open_window (uintptr_t *address, int fd, uint64_t offset, size_t bytes,
                              CUdevice device, enum window_kind kind, const struct place *place);

/* Maps PLACE; one that is mapped already is counted once more at its address.  */
CUresult softgpu_open_place (uintptr_t *address, const struct place *place, enum window_kind kind);

CUresult softgpu_close_window (uintptr_t address, enum window_kind kind);
