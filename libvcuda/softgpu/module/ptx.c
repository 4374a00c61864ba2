/* Which kernels and variables a PTX text has, and what its kernels take.

   A kernel's time and width stand in a comment, so that the same text runs on a real driver:

       //softgpu entry=NAME time_ns=50000
       //softgpu entry=NAME time_ns=param:0      the kernel's first parameter, a u64
       //softgpu entry=NAME time_ns=50000 width_percent=50

   A kernel without a time takes SOFTGPU_DEFAULT_KERNEL_NS; one without a width is as wide as its
   launch has threads.  */

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "module/module.h"

static size_t
name_length (const char *text)
{
  return strspn (text, "0123456789_$%ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
}

/* Reads the value of KEY, or which parameter holds it, in the rest of the line at TEXT.  */
static void
read_value (const char *text, const char *key, uint64_t *value, int *param)
{
  const char *end = text + strcspn (text, "\n"), *found = strstr (text, key);
  if (!found || found >= end)
    return;
  found += strlen (key);
  if (strncmp (found, "param:", 6) == 0)
    *param = (int) strtol (found + 6, NULL, 10);
  else
    *value = strtoull (found, NULL, 10);
}

static void
read_cost (CUfunction function, const char *text)
{
  size_t length = strlen (function->name);
  for (const char *at = text; (at = strstr (at, "//softgpu entry=")) != NULL;)
    {
      at += strlen ("//softgpu entry=");
      if (strncmp (at, function->name, length) != 0 || at[length] != ' ')
        continue;
      read_value (at + length, " time_ns=", &function->time_ns, &function->time_param);
      read_value (at + length, " width_percent=", &function->width_percent, &function->width_param);
      return;
    }
}

/* What follows the next DIRECTIVE outside of comments; *DEPTH counts the braces around it.  */
static const char *
next_directive (const char *at, const char *directive, int *depth)
{
  while (*at)
    {
      const char *end = NULL;
      if (strncmp (at, "//", 2) == 0)
        end = strchr (at, '\n');
      else if (strncmp (at, "/*", 2) == 0)
        end = strstr (at + 2, "*/");
      else if (strncmp (at, directive, strlen (directive)) == 0
               && isspace ((unsigned char) at[strlen (directive)]))
        return at + strlen (directive);
      else
        end = at;
      if (end == at)
        *depth += (*at == '{') - (*at == '}');
      if (!end)
        return NULL;
      at = end + 1;
    }
  return NULL;
}

/* ".global .align 4 .b8 name[16];": the type's bits, times what stands in brackets.  */
static CUresult
read_variables (struct CUmod_st *module, const char *text, const char *space)
{
  int depth = 0;
  for (const char *at = text; (at = next_directive (at, space, &depth)) != NULL;)
    {
      size_t bytes = 0, vector = 1;
      if (depth > 0) /* within a kernel it is the space of a load or a store */
        continue;
      for (;;)
        {
          while (isspace ((unsigned char) *at))
            at++;
          if (*at != '.')
            break;
          if (strncmp (at, ".align", 6) == 0)
            strtoul (at + 6, (char **) &at, 10);
          else if (strncmp (at, ".v2", 3) == 0 || strncmp (at, ".v4", 3) == 0)
            {
              vector = (size_t) (at[2] - '0');
              at += 3;
            }
          else
            {
              size_t digits = strcspn (at, "0123456789 \t\n;");
              bytes = strtoul (at + digits, NULL, 10) / 8;
              at += strcspn (at, " \t\n;");
            }
        }
      const char *name = at;
      size_t length = name_length (name);
      if (!length || !bytes) /* a texture, or a sampler: no memory */
        continue;
      bytes *= vector;
      for (at += length; *at == '[' && bytes < SIZE_MAX >> 33;)
        {
          bytes *= strtoul (at + 1, (char **) &at, 10);
          at += strcspn (at, "];") + 1;
        }
      if (bytes)
        REQUIRE_SUCCESS (softgpu_add_variable (module, name, length, bytes, false));
    }
  return CUDA_SUCCESS;
}

bool
softgpu_is_ptx (const char *image)
{
  for (const char *at = image; at;)
    {
      at += strspn (at, " \t\r\n");
      if (strncmp (at, "//", 2) == 0)
        at = strchr (at, '\n');
      else if (strncmp (at, "/*", 2) == 0)
        at = (at = strstr (at + 2, "*/")) ? at + 2 : NULL;
      else
        return strncmp (at, ".version", strlen (".version")) == 0;
    }
  return false;
}

CUresult
softgpu_read_ptx (struct CUmod_st *module, const char *text)
{
  REQUIRE (strstr (text, ".target"), CUDA_ERROR_INVALID_PTX);
  int depth = 0;
  for (const char *at = text; (at = next_directive (at, ".entry", &depth)) != NULL;)
    {
      while (isspace ((unsigned char) *at))
        at++;
      size_t length = name_length (at);
      REQUIRE (length, CUDA_ERROR_INVALID_PTX);
      CUfunction function = softgpu_add_function (module, at, length);
      REQUIRE (function, CUDA_ERROR_OUT_OF_MEMORY);
      read_cost (function, text);
    }
  REQUIRE_SUCCESS (read_variables (module, text, ".global"));
  return read_variables (module, text, ".const");
}
