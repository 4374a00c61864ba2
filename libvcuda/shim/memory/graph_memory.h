/* Memory that a graph's memory nodes allocate when it is launched.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "real.h"
#include "thread/in_driver.h"

/* Whether any executable graph with memory nodes was made. A program without one pays for reading
   this only.  */
extern bool vcuda_graph_memory_used __attribute__ ((visibility ("hidden")));

/* Reserves what launching EXEC may take above what graphs hold on its GPUs.
   CUDA_ERROR_OUT_OF_MEMORY if it doesn't fit. vcuda_graph_memory_launched must follow.  */
CUresult vcuda_graph_memory_launch (CUgraphExec exec);
void vcuda_graph_memory_launched (CUgraphExec exec, CUresult rc);

/* CALL launches or uploads EXEC.  */
#define VCUDA_WITH_GRAPH_MEMORY(exec, call)                                                        \
  ({                                                                                               \
    CUresult memory_rc = CUDA_SUCCESS;                                                             \
    bool has_memory = __atomic_load_n (&vcuda_graph_memory_used, __ATOMIC_RELAXED);                \
    if (has_memory)                                                                                \
      memory_rc = vcuda_graph_memory_launch (exec);                                                \
    if (memory_rc == CUDA_SUCCESS)                                                                 \
      {                                                                                            \
        memory_rc = call;                                                                          \
        if (has_memory)                                                                            \
          vcuda_graph_memory_launched (exec, memory_rc);                                           \
      }                                                                                            \
    memory_rc;                                                                                     \
  })

/* An executable graph was made from GRAPH, or destroyed.  */
void vcuda_graph_memory_instantiated (CUgraphExec exec, CUgraph graph);
void vcuda_graph_memory_destroyed (CUgraphExec exec);

/* Sets the charge to what the driver reports now: after any call that may have freed graph
   memory.  */
void vcuda_graph_memory_resettle (void);

static inline void
vcuda_graph_memory_settle (void)
{
  if (__builtin_expect (__atomic_load_n (&vcuda_graph_memory_used, __ATOMIC_RELAXED), 0))
    vcuda_graph_memory_resettle ();
}

/* Adds what is charged on each GPU to BYTES, which has VCUDA_MAX_GPUS entries.  */
void vcuda_graph_memory_held (uint64_t *bytes);

/* In the child after a fork.  */
void vcuda_graph_memory_forget (void);
