/* Memory that can be mapped more than once: in this process, or by another.  */

#pragma once

#include "memory/allocations.h"

#define STORE_PAGE 4096ull
#define STORE_WHOLE(bytes) (((bytes) + STORE_PAGE - 1) & ~(STORE_PAGE - 1))
#define SHARED_MAGIC 0x3144524853534753ull /* "SGSSHRD1" */

/* What stands behind the bytes of a memfd that one process exports and another imports.  */
struct shared_note
{
  uint64_t magic;
  uint64_t bytes;
  uint64_t gpu;  /* index in the state file */
  uint32_t kind; /* enum handle_kind */
  CUmemAllocationProp properties;
};

/* This process's own file; -1 when there can't be one.  */
int softgpu_store (void);

/* A range of it that nothing used before.  */
uint64_t softgpu_store_range (uint64_t bytes);
void softgpu_store_drop (uint64_t offset, uint64_t bytes);

/* Maps BYTES of FD (-1: of no file) from OFFSET on, over AT if that is not NULL.  */
void *softgpu_map (int fd, uint64_t offset, size_t bytes, void *at, int access);

/* A memfd of BYTES with NOTE behind them; -1 on failure.  */
int softgpu_export (uint64_t bytes, struct shared_note *note);
bool softgpu_shared_note (int fd, struct shared_note *note);

/* FD of the process PID, opened anew. It needs what the real driver's IPC needs too: one pid
   namespace, and the right to trace the other process.  */
int softgpu_open_others (uint32_t pid, int fd);
