/* Virtual memory management: physical memory and its handles.

   Memory is on the account of the process that created it, from cuMemCreate until it has neither a
   handle nor a use: a mapping, a tile of an array, a binding to a multicast object. Another process
   that imports it pays nothing.  */

#include <fcntl.h>
#include <search.h>
#include <unistd.h>

#include "memory/parts.h"
#include "memory/store.h"
#include "virtual/vmm.h"

/* Recursive: the end of a multicast object unuses what was bound to it.  */
static pthread_mutex_t guard = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static void *handles; /* a tsearch tree: a handle is a number from the program, and may be any */

static int
by_value (const void *left, const void *right)
{
  return left < right ? -1 : left > right;
}

/* With the guard held.  */
static struct physical *
known (CUmemGenericAllocationHandle handle)
{
  void *node = tfind ((void *) handle, &handles, by_value);
  struct physical *physical = node ? *(struct physical **) node : NULL;
  return physical && physical->references ? physical : NULL;
}

/* With the guard held.  */
static void
drop_unused (struct physical *physical)
{
  if (physical->references || physical->uses)
    return;
  tdelete (physical, &handles, by_value);
  if (physical->device >= 0)
    softgpu_unlist_part (physical->fd, physical->offset);
  if (physical->multicast)
    softgpu_end_multicast (physical->multicast);
  else if (physical->own_fd)
    close (physical->fd);
  else
    softgpu_store_drop (physical->offset, physical->bytes);
  if (physical->device >= 0)
    softgpu_uncharge (physical->device, physical->bytes);
  softgpu_retire (physical, sizeof *physical);
}

struct physical *
softgpu_new_physical (const struct physical *made)
{
  struct physical *physical = softgpu_new_record (sizeof *physical);
  if (!physical)
    return NULL;
  *physical = *made;
  physical->kind = PHYSICAL;
  physical->references = 1;
  pthread_mutex_lock (&guard);
  void *node = tsearch (physical, &handles, by_value);
  pthread_mutex_unlock (&guard);
  if (node)
    return physical;
  softgpu_retire (physical, sizeof *physical);
  return NULL;
}

struct physical *
softgpu_physical (CUmemGenericAllocationHandle handle)
{
  pthread_mutex_lock (&guard);
  struct physical *physical = known (handle);
  if (physical)
    physical->uses++;
  pthread_mutex_unlock (&guard);
  return physical;
}

void
softgpu_physical_use (struct physical *physical, size_t times)
{
  pthread_mutex_lock (&guard);
  physical->uses += times;
  pthread_mutex_unlock (&guard);
}

void
softgpu_physical_unuse (struct physical *physical, size_t times)
{
  pthread_mutex_lock (&guard);
  physical->uses -= times;
  drop_unused (physical);
  pthread_mutex_unlock (&guard);
}

static bool
on_host (const CUmemAllocationProp *properties)
{
  return properties->location.type == CU_MEM_LOCATION_TYPE_HOST
         || properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static CUresult
check (const CUmemAllocationProp *properties)
{
  REQUIRE (properties && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED,
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE (on_host (properties) || properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE,
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE (on_host (properties) || valid_device (properties->location.id),
           CUDA_ERROR_INVALID_DEVICE);
  const unsigned posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  REQUIRE (((unsigned) properties->requestedHandleTypes & ~posix) == 0, CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE (properties->location.type != CU_MEM_LOCATION_TYPE_HOST
               || properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE,
           CUDA_ERROR_INVALID_VALUE);
  /* Arrays are on a GPU, and driver 580 refuses a tile pool that could be exported.  */
  if (properties->allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL)
    REQUIRE (!on_host (properties) && properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE,
             CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

CUresult
cuMemGetAllocationGranularity (size_t *granularity, const CUmemAllocationProp *prop,
                               CUmemAllocationGranularity_flags option)
{
  REQUIRE_DRIVER ();
  REQUIRE (granularity && (unsigned) option <= CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SUCCESS (check (prop));
  *granularity = VMM_GRANULE;
  return CUDA_SUCCESS;
}

CUresult
cuMemCreate (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
             unsigned long long flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (handle && size && size % VMM_GRANULE == 0 && flags == 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SUCCESS (check (prop));
  struct physical made
      = { .bytes = size, .device = on_host (prop) ? -1 : prop->location.id, .properties = *prop };
  REQUIRE (made.device < 0 || softgpu_charge (made.device, size), CUDA_ERROR_OUT_OF_MEMORY);
  made.own_fd = prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  if (made.own_fd)
    {
      struct shared_note note = { .kind = PHYSICAL, .properties = *prop };
      note.gpu = made.device < 0 ? SOFTGPU_MAX_ENTRIES : gpu_index (made.device);
      made.fd = softgpu_export (size, &note);
    }
  else
    {
      made.fd = softgpu_store ();
      made.offset = softgpu_store_range (size);
    }
  struct physical *physical = made.fd >= 0 ? softgpu_new_physical (&made) : NULL;
  if (physical)
    {
      if (made.device >= 0)
        softgpu_list_part (made.device, made.fd, made.offset, size);
      *handle = (CUmemGenericAllocationHandle) physical;
      return CUDA_SUCCESS;
    }
  if (made.own_fd && made.fd >= 0)
    close (made.fd);
  if (made.device >= 0)
    softgpu_uncharge (made.device, size);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult
cuMemRelease (CUmemGenericAllocationHandle handle)
{
  REQUIRE_DRIVER ();
  pthread_mutex_lock (&guard);
  struct physical *physical = known (handle);
  if (physical)
    {
      physical->references--;
      drop_unused (physical);
    }
  pthread_mutex_unlock (&guard);
  return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuMemRetainAllocationHandle (CUmemGenericAllocationHandle *handle, void *addr)
{
  REQUIRE_DRIVER ();
  struct block block;
  REQUIRE (handle && softgpu_find_block ((uintptr_t) addr, &block), CUDA_ERROR_INVALID_VALUE);
  struct physical *physical = block.owner;
  REQUIRE (block.where == WINDOW && physical && physical->kind == PHYSICAL,
           CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock (&guard);
  physical->references++;
  pthread_mutex_unlock (&guard);
  *handle = (CUmemGenericAllocationHandle) physical;
  return CUDA_SUCCESS;
}

CUresult
cuMemGetAllocationPropertiesFromHandle (CUmemAllocationProp *prop,
                                        CUmemGenericAllocationHandle handle)
{
  REQUIRE_DRIVER ();
  REQUIRE (prop, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock (&guard);
  struct physical *physical = known (handle);
  if (physical && physical->multicast)
    physical = NULL;
  if (physical)
    *prop = physical->properties;
  pthread_mutex_unlock (&guard);
  return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuMemExportToShareableHandle (void *shareable, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type, unsigned long long flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (shareable && flags == 0, CUDA_ERROR_INVALID_VALUE);
  int fd = -1;
  pthread_mutex_lock (&guard);
  struct physical *physical = known (handle);
  bool may = physical && physical->own_fd && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (may)
    fd = fcntl (physical->fd, F_DUPFD_CLOEXEC, 0);
  pthread_mutex_unlock (&guard);
  REQUIRE (may, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (fd >= 0, CUDA_ERROR_OUT_OF_MEMORY);
  *(int *) shareable = fd;
  return CUDA_SUCCESS;
}

/* The descriptor stays the caller's.  */
CUresult
cuMemImportFromShareableHandle (CUmemGenericAllocationHandle *handle, void *shareable,
                                CUmemAllocationHandleType type)
{
  REQUIRE_DRIVER ();
  REQUIRE (handle && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_INVALID_VALUE);
  struct shared_note note;
  int theirs = (int) (intptr_t) shareable;
  REQUIRE (softgpu_shared_note (theirs, &note) && note.kind == PHYSICAL, CUDA_ERROR_INVALID_VALUE);
  struct physical made
      = { .bytes = note.bytes, .device = -1, .own_fd = true, .properties = note.properties };
  CUdevice device = device_of_gpu (note.gpu);
  if (device >= 0)
    made.properties.location.id = device; /* the exporter's number may be another */
  made.fd = fcntl (theirs, F_DUPFD_CLOEXEC, 0);
  struct physical *physical = made.fd >= 0 ? softgpu_new_physical (&made) : NULL;
  if (!physical && made.fd >= 0)
    close (made.fd);
  REQUIRE (physical, CUDA_ERROR_OUT_OF_MEMORY);
  *handle = (CUmemGenericAllocationHandle) physical;
  return CUDA_SUCCESS;
}
