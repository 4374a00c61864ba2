/* Prints `struct.field offset size` for every field of the pages; a test compares it with the
   Python mirror.  */

#include <stdio.h>

#include "vcuda_abi.h"

#define LINE(name, at, field)                                                                      \
  printf ("%s %zu %zu\n", name, (size_t) (at), sizeof (((struct STRUCT *) 0)->field))
#define SCALAR(type, field) LINE (NAME "." #field, offsetof (struct STRUCT, field), field);
#define ARRAY(type, field, count) SCALAR (type, field)

int
main (void)
{
#define STRUCT vcuda_limits
#define NAME "limits"
  VCUDA_LIMITS_HEAD_FIELDS (SCALAR, ARRAY)
  SCALAR (_, gpu)
#undef STRUCT
#undef NAME
#define STRUCT vcuda_limits_gpu
#define NAME "limits_gpu"
  VCUDA_LIMITS_GPU_FIELDS (SCALAR, ARRAY)
#undef STRUCT
#undef NAME
#define STRUCT vcuda_usage
#define NAME "usage"
  VCUDA_USAGE_HEAD_FIELDS (SCALAR, ARRAY)
  SCALAR (_, gpu)
  SCALAR (_, slot)
#undef STRUCT
#undef NAME
#define STRUCT vcuda_usage_gpu
#define NAME "usage_gpu"
  VCUDA_USAGE_GPU_FIELDS (SCALAR, ARRAY)
#undef STRUCT
#undef NAME
#define STRUCT vcuda_usage_slot
#define NAME "usage_slot"
  VCUDA_USAGE_SLOT_FIELDS (SCALAR, ARRAY)
#undef STRUCT
#undef NAME
  printf ("limits.whole 0 %zu\nlimits_gpu.whole 0 %zu\n", sizeof (struct vcuda_limits),
          sizeof (struct vcuda_limits_gpu));
  printf ("usage.whole 0 %zu\nusage_gpu.whole 0 %zu\nusage_slot.whole 0 %zu\n",
          sizeof (struct vcuda_usage), sizeof (struct vcuda_usage_gpu),
          sizeof (struct vcuda_usage_slot));
  return 0;
}
