/* The device memory of modules: variables and code, in each context that they are in.  */

#include <stdlib.h>
#include <string.h>

#include "memory/allocations.h"
#include "module/module.h"

/* Of one variable in one context. What the context had ended with its life.  */
struct placement
{
  struct placement *next;
  CUcontext context;
  uint64_t id, life; /* of the context */
  uint64_t call;     /* the one that made it */
  CUdeviceptr start;
};

/* Larger blocks are new to the process, and the kernel's zeroes.  */
#define TO_CLEAR (1u << 20)

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static uint64_t calls;

bool
softgpu_loads_lazily (void)
{
  const char *mode = getenv ("CUDA_MODULE_LOADING");
  return mode && strcmp (mode, "LAZY") == 0;
}

CUresult
softgpu_add_variable (struct CUmod_st *module, const char *name, size_t length, size_t bytes,
                      bool code)
{
  struct variable *variable = calloc (1, sizeof *variable + length + 1);
  REQUIRE (variable, CUDA_ERROR_OUT_OF_MEMORY);
  memcpy (variable->name, name, length);
  variable->bytes = bytes;
  variable->code = code;
  variable->next = module->variables;
  module->variables = variable;
  return CUDA_SUCCESS;
}

static bool
lives (const struct placement *placement)
{
  CUcontext context = placement->context;
  return valid_context (context) && context->id == placement->id
         && context->lives == placement->life;
}

/* Where VARIABLE is in CONTEXT, or NULL.  */
static struct placement *
placement_in (const struct variable *variable, CUcontext context)
{
  struct placement *placement = variable->placements;
  while (placement && (placement->context != context || !lives (placement)))
    placement = placement->next;
  return placement;
}

static CUresult
place (struct variable *variable, CUcontext context)
{
  if (placement_in (variable, context))
    return CUDA_SUCCESS;
  struct placement *placement = calloc (1, sizeof *placement);
  REQUIRE (placement, CUDA_ERROR_OUT_OF_MEMORY);
  uintptr_t start;
  CUresult rc = softgpu_allocate (&start, variable->bytes, ON_DEVICE, 0, NULL);
  if (rc != CUDA_SUCCESS)
    {
      free (placement);
      return rc;
    }
  if (variable->bytes <= TO_CLEAR)
    memset ((void *) start, 0, variable->bytes);
  *placement = (struct placement){ .next = variable->placements,
                                   .context = context,
                                   .id = context->id,
                                   .life = context->lives,
                                   .call = calls,
                                   .start = start };
  variable->placements = placement;
  return CUDA_SUCCESS;
}

/* A call that was refused leaves nothing placed.  */
static void
displace (struct CUmod_st *module)
{
  for (struct variable *variable = module->variables; variable; variable = variable->next)
    {
      struct placement *placement = variable->placements;
      if (!placement || placement->call != calls)
        continue;
      variable->placements = placement->next;
      softgpu_release (placement->start, COUNTED);
      free (placement);
    }
}

/* Compiled code has a kernel's parts in sections with names that end in ".KERNEL".  */
static bool
part_of (const struct variable *variable, const char *kernel)
{
  size_t all = strlen (variable->name), end = strlen (kernel);
  return variable->code && all > end && variable->name[all - end - 1] == '.'
         && strcmp (variable->name + all - end, kernel) == 0;
}

/* On the account as a real driver has it. A destroyed context takes it along.  */
CUresult
softgpu_place (struct CUmod_st *module, const char *kernel)
{
  REQUIRE_CONTEXT (context);
  bool lazy = softgpu_loads_lazily ();
  CUresult rc = CUDA_SUCCESS;
  pthread_mutex_lock (&guard);
  calls++;
  struct variable *variable = module->variables;
  for (; variable && rc == CUDA_SUCCESS; variable = variable->next)
    if (kernel ? part_of (variable, kernel) : !(lazy && variable->code))
      rc = place (variable, context);
  if (rc != CUDA_SUCCESS)
    displace (module);
  pthread_mutex_unlock (&guard);
  return rc;
}

void
softgpu_free_variables (struct CUmod_st *module)
{
  for (struct variable *next, *variable = module->variables; variable; variable = next)
    {
      next = variable->next;
      for (struct placement *after, *placement = variable->placements; placement; placement = after)
        {
          after = placement->next;
          if (lives (placement))
            softgpu_release (placement->start, COUNTED);
          free (placement);
        }
      free (variable);
    }
  module->variables = NULL;
}

CUresult
softgpu_find_variable (CUdeviceptr *start, size_t *bytes, struct CUmod_st *module, const char *name)
{
  REQUIRE (name && (start || bytes), CUDA_ERROR_INVALID_VALUE);
  struct variable *variable = module->variables;
  while (variable && (variable->code || strcmp (variable->name, name) != 0))
    variable = variable->next;
  REQUIRE (variable, CUDA_ERROR_NOT_FOUND);
  pthread_mutex_lock (&guard);
  struct placement *placement = placement_in (variable, softgpu_current_context ());
  placement = placement ? placement : variable->placements;
  if (start)
    *start = placement ? placement->start : 0;
  if (bytes)
    *bytes = variable->bytes;
  pthread_mutex_unlock (&guard);
  return CUDA_SUCCESS;
}
