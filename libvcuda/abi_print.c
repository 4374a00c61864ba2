/* Prints `struct.field offset size` for every field of the pages; a test compares it with the
   Python mirror.  */

#include <stdio.h>

#include "vcuda_abi.h"

#define SCALAR(type, field)                                                                        \
  printf ("%s.%s %zu %zu\n", name, #field, offsetof (page, field), sizeof (((page *) 0)->field));
#define ARRAY(type, field, count) SCALAR (type, field)

/* Prints the FIELDS of vcuda_PAGE_NAME, and its whole size.  */
#define PRINT(page_name, fields)                                                                   \
  {                                                                                                \
    typedef struct vcuda_##page_name page;                                                         \
    const char *const name = #page_name;                                                           \
    fields;                                                                                        \
    printf ("%s.whole 0 %zu\n", name, sizeof (page));                                              \
  }

int
main (void)
{
  PRINT (limits, VCUDA_LIMITS_HEAD_FIELDS (SCALAR, ARRAY) SCALAR (_, gpu))
  PRINT (limits_gpu, VCUDA_LIMITS_GPU_FIELDS (SCALAR, ARRAY))
  PRINT (usage, VCUDA_USAGE_HEAD_FIELDS (SCALAR, ARRAY) SCALAR (_, gpu) SCALAR (_, slot))
  PRINT (usage_gpu, VCUDA_USAGE_GPU_FIELDS (SCALAR, ARRAY))
  PRINT (usage_slot, VCUDA_USAGE_SLOT_FIELDS (SCALAR, ARRAY))
  return 0;
}
