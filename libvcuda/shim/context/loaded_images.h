/* The modules and libraries that this process has loaded, and what each is charged in each context.
   Nothing here reserves or gives back memory: callers do, by these numbers.  */

#pragma once

#include "context/image_size.h"
#include "memory/settle.h"

struct vcuda_image;

/* The driver loaded an image of SIZE and named it HANDLE. A library outlives every context. Without
   host memory to remember it, what was reserved for it stays until the process ends.  */
void vcuda_image_loaded (const void *handle, const struct vcuda_image_size *size, bool library);

/* Whether HANDLE is known and not in CONTEXT yet; BYTES is what it takes there.  */
bool vcuda_image_missing (const void *handle, CUcontext context, uint64_t *bytes);

/* What CHARGE reserved is HANDLE's, in CHARGE's context.  */
void vcuda_image_placed (const void *handle, const struct vcuda_charge *charge);

/* Whether HANDLE is known and its image states no size.  */
bool vcuda_image_size_unknown (const void *handle);

/* The variable at START, of CHARGE's bytes, is HANDLE's. CHARGE has the current context, or none,
   and gets the GPU of the variable. False: it was counted already.  */
bool vcuda_image_named (const void *handle, CUdeviceptr start, struct vcuda_charge *charge);

/* Takes HANDLE out; NULL: it is not known. The caller then puts it back, or drops it, which adds
   what it held per GPU to BYTES, which has VCUDA_MAX_GPUS entries.  */
struct vcuda_image *vcuda_image_take (const void *handle);
void vcuda_image_put (struct vcuda_image *image);
void vcuda_image_drop (struct vcuda_image *image, uint64_t *bytes);

/* Takes out what is in CONTEXT, which ended, and adds it per GPU to BYTES.  */
void vcuda_images_take_context (CUcontext context, uint64_t *bytes);

/* Adds what is held on each GPU to BYTES.  */
void vcuda_images_held (uint64_t *bytes);

/* In the child after a fork: the parent's images are not the child's.  */
void vcuda_images_forget (void);
