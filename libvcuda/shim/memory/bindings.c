/* Holders, which are arrays and multicast objects, with their bindings in a tree by place. An
   operation that covers only a part of a binding does not end it: memory may be charged for longer
   than it is bound, never for less.  */

#include "memory/bindings.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "memory/blocks.h"

struct vcuda_holder
{
  uint64_t key;
  CUcontext context;         /* of an array */
  void *bindings;            /* by place */
  struct vcuda_holder *next; /* while it is on a list */
};

static void *holders; /* by key */
static unsigned holder_count;

static int
by_key (const void *one, const void *other)
{
  return vcuda_compare (((const struct vcuda_holder *) one)->key,
                        ((const struct vcuda_holder *) other)->key);
}

static int
by_place (const void *one, const void *other)
{
  return memcmp (&((const struct vcuda_binding *) one)->place,
                 &((const struct vcuda_binding *) other)->place, sizeof (struct vcuda_place));
}

static struct vcuda_holder *
find_holder (uint64_t key)
{
  struct vcuda_holder **node = tfind (&(struct vcuda_holder){ .key = key }, &holders, by_key);
  return node ? *node : NULL;
}

static void
enter_holder (struct vcuda_holder *holder)
{
  if (tsearch (holder, &holders, by_key))
    __atomic_fetch_add (&holder_count, 1, __ATOMIC_RELAXED);
}

static struct vcuda_holder *
find_or_make_holder (uint64_t key, CUcontext context)
{
  struct vcuda_holder *holder = find_holder (key);
  if (!holder && (holder = malloc (sizeof *holder)))
    {
      *holder = (struct vcuda_holder){ .key = key, .context = context };
      enter_holder (holder);
    }
  return holder;
}

static struct vcuda_holder *
remove_holder (uint64_t key)
{
  struct vcuda_holder *holder = find_holder (key);
  if (holder)
    {
      tdelete (holder, &holders, by_key);
      __atomic_fetch_sub (&holder_count, 1, __ATOMIC_RELAXED);
    }
  return holder;
}

static void
end_binding (void *argument)
{
  struct vcuda_binding *binding = argument;
  vcuda_block_unuse (binding->block);
  free (binding);
}

void
vcuda_bindings_end_list (struct vcuda_binding *list)
{
  while (list)
    {
      struct vcuda_binding *binding = list;
      list = binding->next;
      end_binding (binding);
    }
}

static void
end_holder (struct vcuda_holder *holder)
{
  tdestroy (holder->bindings, end_binding);
  free (holder);
}

static bool
within (const struct vcuda_place *part, const struct vcuda_place *whole)
{
  bool inside = part->kind == whole->kind && part->level == whole->level
                && part->layer == whole->layer && part->gpu == whole->gpu;
  for (int i = 0; i < 3 && inside; i++)
    inside = part->offset[i] >= whole->offset[i] && part->extent[i] <= whole->extent[i]
             && part->offset[i] - whole->offset[i] <= whole->extent[i] - part->extent[i];
  return inside;
}

/* twalk passes no argument to its function. Guarded by the lock.  */
static struct
{
  struct vcuda_place place;
  CUcontext context;
  struct vcuda_binding *bindings;
  struct vcuda_holder *holders;
} found;

static void
note_within (const void *node, VISIT visit, int depth)
{
  struct vcuda_binding *binding = *(struct vcuda_binding *const *) node;
  (void) depth;
  if ((visit != postorder && visit != leaf) || !within (&binding->place, &found.place))
    return;
  binding->next = found.bindings;
  found.bindings = binding;
}

void
vcuda_unbind (uint64_t key, const struct vcuda_place *place, struct vcuda_binding **list)
{
  struct vcuda_holder *holder = find_holder (key);
  if (!holder)
    return;
  struct vcuda_binding wanted = { .place = *place };
  struct vcuda_binding **node = tfind (&wanted, &holder->bindings, by_place);
  found.place = *place;
  found.bindings = NULL;
  if (node)
    {
      found.bindings = *node;
      found.bindings->next = NULL;
    }
  else
    twalk (holder->bindings, note_within);
  while (found.bindings)
    {
      struct vcuda_binding *binding = found.bindings;
      found.bindings = binding->next;
      tdelete (binding, &holder->bindings, by_place);
      binding->next = *list;
      *list = binding;
    }
}

struct vcuda_binding *
vcuda_new_binding (const struct vcuda_place *place, struct vcuda_block *block)
{
  struct vcuda_binding *binding = malloc (sizeof *binding);
  if (binding)
    *binding = (struct vcuda_binding){ .place = *place, .block = block };
  return binding;
}

void
vcuda_bind (uint64_t key, CUcontext context, struct vcuda_binding *binding,
            struct vcuda_binding **list)
{
  struct vcuda_holder *holder = find_or_make_holder (key, context);
  struct vcuda_binding **node = holder ? tsearch (binding, &holder->bindings, by_place) : NULL;
  if (!node)
    free (binding); /* no host memory: the charge stays until the process ends */
  else if (*node != binding)
    {
      (*node)->next = *list;
      *list = *node;
      *node = binding;
    }
}

void
vcuda_bindings_end (uint64_t key)
{
  struct vcuda_holder *holder = remove_holder (key);
  if (holder)
    end_holder (holder);
}

struct vcuda_holder *
vcuda_bindings_take (uint64_t key)
{
  if (!__atomic_load_n (&holder_count, __ATOMIC_RELAXED))
    return NULL;
  vcuda_blocks_lock ();
  struct vcuda_holder *holder = remove_holder (key);
  vcuda_blocks_unlock ();
  return holder;
}

void
vcuda_bindings_taken (struct vcuda_holder *holder, CUresult rc)
{
  if (!holder)
    return;
  vcuda_blocks_lock ();
  if (rc == CUDA_SUCCESS)
    end_holder (holder);
  else
    enter_holder (holder);
  vcuda_blocks_unlock ();
}

static void
note_of_context (const void *node, VISIT visit, int depth)
{
  struct vcuda_holder *holder = *(struct vcuda_holder *const *) node;
  (void) depth;
  if ((visit != postorder && visit != leaf) || holder->context != found.context)
    return;
  holder->next = found.holders;
  found.holders = holder;
}

void
vcuda_bindings_end_context (CUcontext context)
{
  found.context = context;
  found.holders = NULL;
  twalk (holders, note_of_context);
  while (found.holders)
    {
      struct vcuda_holder *holder = found.holders;
      found.holders = holder->next;
      vcuda_bindings_end (holder->key);
    }
}

void
vcuda_bindings_forget (void)
{
  holders = NULL;
  holder_count = 0;
}
