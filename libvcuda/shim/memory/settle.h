/* The bodies of calls that allocate and free.

   A call that allocates has three steps. It reserves the bytes against the share, which may refuse
   them; it calls the driver; and it settles: after a success the charge is kept in the map under
   the pointer or handle, after a failure it is given back. So two threads cannot both pass the
   limit.

   A call that frees takes the entry out of the map, calls the driver, and then gives the bytes
   back, or puts the entry back if the driver failed.  */

#pragma once

#include "charge/alloc_map.h"
#include "memory/graph_memory.h"
#include "memory/room.h"
#include "pages/pages.h"
#include "real.h"
#include "thread/in_driver.h"

struct vcuda_charge
{
  CUcontext context;
  int gpu;
  uint64_t bytes;
};

/* Reserves BYTES on the current context's GPU. On failure nothing is held.  */
CUresult vcuda_charge_current (struct vcuda_charge *charge, uint64_t bytes);

/* Reserves what the driver took above CHARGE. On failure CHARGE is unchanged.  */
CUresult vcuda_charge_more (struct vcuda_charge *charge, uint64_t bytes);

/* Keeps CHARGE under KEY if the driver granted it, else gives it back. Returns RC.  */
CUresult vcuda_settle (const struct vcuda_charge *charge, CUresult rc, uint64_t key,
                       enum vcuda_owner owner);

/* The body of a call that allocates BYTES: CALL calls the driver, KEY is read if the driver granted
   it.  */
#define VCUDA_ALLOCATE(bytes, call, key, owner)                                                    \
  VCUDA_ALLOCATE_AS (bytes, call, call,                                                            \
                     vcuda_settle (&charge, rc, rc == CUDA_SUCCESS ? (key) : 0, owner))

/* The same: PASSED is the call for a caller that is the driver, CALL may read `charge`, and SETTLED
   settles `charge` after the driver's answer `rc`.  */
#define VCUDA_ALLOCATE_AS(bytes, passed, call, settled)                                            \
  do                                                                                               \
    {                                                                                              \
      struct vcuda_charge charge;                                                                  \
      struct vcuda_thread *thread = vcuda_thread ();                                               \
      if (thread->in_driver)                                                                       \
        return passed;                                                                             \
      CUresult rc = vcuda_charge_current (&charge, bytes);                                         \
      if (rc != CUDA_SUCCESS)                                                                      \
        return rc;                                                                                 \
      rc = VCUDA_CALL_WITH_ROOM (thread, charge.gpu, call);                                        \
      return settled;                                                                              \
    }                                                                                              \
  while (0)

/* The body of a call that frees. The entry is taken out of the map before the driver frees: after
   that the driver may give the same handle to another thread.  */
#define VCUDA_RELEASE(key, call)                                                                   \
  do                                                                                               \
    {                                                                                              \
      struct vcuda_allocation allocation;                                                          \
      struct vcuda_thread *thread = vcuda_thread ();                                               \
      if (thread->in_driver)                                                                       \
        return call;                                                                               \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
      bool known = vcuda_map_take (key, &allocation);                                              \
      CUresult rc = VCUDA_CALL_DRIVER_OF (thread, call);                                           \
      if (known)                                                                                   \
        vcuda_settle_free (&allocation, rc);                                                       \
      else                                                                                         \
        vcuda_graph_memory_settle ();                                                              \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

/* ALLOCATION was taken out of the map, and the driver's free returned RC.  */
void vcuda_settle_free (const struct vcuda_allocation *allocation, CUresult rc);
