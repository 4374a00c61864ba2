/* Memory of cuMemCreate that is mapped into a sparse array or bound to a multicast object. It
   outlives cuMemRelease, so it stays charged until it is unmapped or unbound, or until the array or
   object ends.  */

#pragma once

#include "real.h"

struct vcuda_block;

enum vcuda_place_kind
{
  VCUDA_LEVEL, /* of an array */
  VCUDA_MIP_TAIL,
  VCUDA_MULTICAST
};

/* A box of elements, or a range of bytes, which has one dimension.  */
struct vcuda_place
{
  uint32_t kind, level, layer;
  int32_t gpu; /* of a multicast object: each GPU has its own memory at an offset */
  uint64_t offset[3], extent[3];
};

struct vcuda_binding
{
  struct vcuda_place place;
  struct vcuda_block *block;
  struct vcuda_binding *next; /* while it is on a list */
};

/* A binding at PLACE of BLOCK, which counts a use for it. NULL: no host memory; the block then
   stays charged until the process ends.  */
struct vcuda_binding *vcuda_new_binding (const struct vcuda_place *place,
                                         struct vcuda_block *block);

/* All that follow need the lock of blocks, except vcuda_bindings_take and vcuda_bindings_taken.

   Enters BINDING for the holder KEY. A binding at the same place is moved to LIST; one that
   overlaps in part, or is smaller, stays.  */
void vcuda_bind (uint64_t key, CUcontext context, struct vcuda_binding *binding,
                 struct vcuda_binding **list);

/* Moves all bindings within PLACE to LIST.  */
void vcuda_unbind (uint64_t key, const struct vcuda_place *place, struct vcuda_binding **list);

void vcuda_bindings_end_list (struct vcuda_binding *list);

/* Ends all bindings of the array or multicast object of KEY, which has ended.  */
void vcuda_bindings_end (uint64_t key);

/* The same for all holders of CONTEXT.  */
void vcuda_bindings_end_context (CUcontext context);

/* CALL destroys the array of KEY. Its bindings are taken out before the call: right after it the
   driver may give the same handle to another thread.  */
struct vcuda_holder;
struct vcuda_holder *vcuda_bindings_take (uint64_t key);
void vcuda_bindings_taken (struct vcuda_holder *holder, CUresult rc);

#define VCUDA_WITH_BINDINGS(key, call)                                                             \
  ({                                                                                               \
    struct vcuda_holder *holder = vcuda_bindings_take (key);                                       \
    CUresult bindings_rc = call;                                                                   \
    vcuda_bindings_taken (holder, bindings_rc);                                                    \
    bindings_rc;                                                                                   \
  })

/* In the child after a fork.  */
void vcuda_bindings_forget (void);
