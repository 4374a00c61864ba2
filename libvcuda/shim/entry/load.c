/* Loads the driver's libraries at first use, from the folder that the limits page names.  */

#include "entry/load.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "entry/gate.h"
#include "pages/pages.h"
#include "pages/suspended.h"
#include "real.h"
#include "thread/old_glibc.h"

VCUDA_OLD_GLIBC (dlopen);
VCUDA_OLD_GLIBC (dlsym);
VCUDA_OLD_GLIBC (dlclose);

enum library
{
  LIBCUDA,
  LIBNVML,
};

static const char *const file_names[] = { "libcuda.so.1", "libnvidia-ml.so.1" };
static const char *const private_names[] = { VCUDA_DRIVER_CUDA, VCUDA_DRIVER_NVML };
static const char *const probes[] = { "cuInit", "nvmlInit_v2" };

const char *
vcuda_entry_name (unsigned index)
{
  return vcuda_entry_names + vcuda_entry_name_offsets[index];
}

#define REFUSES(name, type, error)                                                                 \
  static type name (void) { return error; }

REFUSES (cuda_not_ready, CUresult, CUDA_ERROR_SYSTEM_NOT_READY)
REFUSES (cuda_not_found, CUresult, CUDA_ERROR_NOT_FOUND)
REFUSES (nvml_not_ready, nvmlReturn_t, NVML_ERROR_UNKNOWN)
REFUSES (nvml_not_found, nvmlReturn_t, NVML_ERROR_FUNCTION_NOT_FOUND)

static CUresult
cuda_error_text (CUresult code, const char **text)
{
  *text = code == CUDA_ERROR_SYSTEM_NOT_READY ? "CUDA_ERROR_SYSTEM_NOT_READY" : NULL;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static const char *
nvml_error_text (nvmlReturn_t code)
{
  (void) code;
  return "vcuda: this container's limits or driver are missing";
}

/* glibc recognises a library by its soname too. Once the driver's libnvidia-ml.so.1 is loaded, a
   program's dlopen ("libnvidia-ml.so.1") would return it, unless an older entry of the loader's
   list has that name. Opening both public names first (they are one file, so one library) reserves
   them for the shim; DT_RPATH $ORIGIN finds them beside it.  */
static void
claim_public_names (void)
{
  for (size_t i = 0; i < sizeof file_names / sizeof *file_names; i++)
    {
      void *handle = dlopen (file_names[i], RTLD_LAZY | RTLD_LOCAL);
      /* Another library under this name is what the program would get without the shim.  */
      if (handle && dlsym (handle, "cuInit") != (void *) cuInit)
        dlclose (handle);
    }
}

/* The dlopen handle of the library that has entry INDEX, or NULL.  */
static void *
library_of (unsigned index)
{
  enum library which = index < VCUDA_FIRST_NVML ? LIBCUDA : LIBNVML;
  static void *handles[2];
  static void *const failed = (void *) -1;
  void *handle = __atomic_load_n (&handles[which], __ATOMIC_ACQUIRE);
  if (handle)
    return handle == failed ? NULL : handle;

  /* No lock around dlopen: a caller may already hold the loader's lock, in a constructor.  */
  char path[sizeof vcuda_pages.limits->driver_dir + 32];
  snprintf (path, sizeof path, "%s/%s", vcuda_pages.limits->driver_dir, private_names[which]);
  claim_public_names ();
  handle = dlopen (path, RTLD_LAZY | RTLD_LOCAL);
  void *own = which == LIBCUDA ? (void *) cuInit : (void *) nvmlInit_v2;
  /* The shim mounted over its own driver would call itself endlessly.  */
  if (!handle || dlsym (handle, probes[which]) == own)
    handle = failed;
  __atomic_store_n (&handles[which], handle, __ATOMIC_RELEASE);
  return handle == failed ? NULL : handle;
}

void *
vcuda_driver_symbol (unsigned index)
{
  void *handle = library_of (index);
  return handle ? dlsym (handle, vcuda_entry_name (index)) : NULL;
}

static void *
refusal (unsigned index, bool loaded)
{
  if (index == VCUDA_INDEX_nvmlErrorString)
    return (void *) nvml_error_text;
  if (index >= VCUDA_FIRST_NVML)
    return loaded ? (void *) nvml_not_found : (void *) nvml_not_ready;
  if (index == VCUDA_INDEX_cuGetErrorName || index == VCUDA_INDEX_cuGetErrorString)
    return (void *) cuda_error_text;
  return loaded ? (void *) cuda_not_found : (void *) cuda_not_ready;
}

void *
vcuda_resolve (unsigned index)
{
  int saved = errno;
  bool ready = vcuda_ready ();
  void *function = ready ? vcuda_driver_symbol (index) : NULL;
  if (!function)
    function = refusal (index, ready && library_of (index));
  else if (index < VCUDA_FIRST_NVML && vcuda_calls_ask ())
    function = vcuda_gate_of_entry (index, function);
  __atomic_store_n ((void **) &real + index, function, __ATOMIC_RELEASE);
  errno = saved;
  return function;
}
