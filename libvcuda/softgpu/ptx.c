/* Which kernels a PTX text has and how long they take.

   A kernel's time stands in a comment, so that the same text runs on a real driver:

       //softgpu entry=NAME time_ns=50000
       //softgpu entry=NAME time_ns=param:0      the kernel's first parameter, a u64

   A kernel without one takes SOFTGPU_DEFAULT_KERNEL_NS.  */

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"

static size_t
name_length (const char *text)
{
  size_t length = 0;
  while (isalnum ((unsigned char) text[length]) || strchr ("_$%", text[length]))
    {
      if (!text[length])
        break;
      length++;
    }
  return length;
}

static void
read_time (CUfunction function, const char *text)
{
  size_t length = strlen (function->name);
  for (const char *at = text; (at = strstr (at, "//softgpu entry=")) != NULL;)
    {
      at += strlen ("//softgpu entry=");
      if (strncmp (at, function->name, length) != 0
          || strncmp (at + length, " time_ns=", strlen (" time_ns=")) != 0)
        continue;
      const char *time = at + length + strlen (" time_ns=");
      if (strncmp (time, "param:", 6) == 0)
        function->time_param = (int) strtol (time + 6, NULL, 10);
      else
        function->time_ns = strtoull (time, NULL, 10);
      return;
    }
}

/* The next ".entry" outside of comments.  */
static const char *
next_entry (const char *at)
{
  while (*at)
    {
      const char *end = NULL;
      if (strncmp (at, "//", 2) == 0)
        end = strchr (at, '\n');
      else if (strncmp (at, "/*", 2) == 0)
        end = strstr (at + 2, "*/");
      else if (strncmp (at, ".entry", 6) == 0 && isspace ((unsigned char) at[6]))
        return at + 6;
      else
        end = at;
      if (!end)
        return NULL;
      at = end + 1;
    }
  return NULL;
}

CUresult
softgpu_read_ptx (struct CUmod_st *module, const char *text)
{
  REQUIRE (strstr (text, ".version") && strstr (text, ".target"), CUDA_ERROR_INVALID_PTX);
  for (const char *at = text; (at = next_entry (at)) != NULL;)
    {
      while (isspace ((unsigned char) *at))
        at++;
      size_t length = name_length (at);
      REQUIRE (length, CUDA_ERROR_INVALID_PTX);
      CUfunction function = softgpu_add_function (module, at, length);
      REQUIRE (function, CUDA_ERROR_OUT_OF_MEMORY);
      read_time (function, text);
    }
  return CUDA_SUCCESS;
}
