/* The device memory that a module's or library's image takes.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

struct vcuda_image_size
{
  uint64_t bytes; /* of device memory, in each context that it is loaded into */
  bool known;     /* false: PTX, a fat binary, or nothing that can be loaded */
};

/* The size of an image that cuModuleLoadData takes, and of the file at PATH. Either may be
   NULL.  */
struct vcuda_image_size vcuda_image_in_memory (const void *image);
struct vcuda_image_size vcuda_image_in_file (const char *path);
