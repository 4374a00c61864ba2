/* Graphs, and streams that are captured into one.  */

#pragma once

#include "driver/function.h"

/* The memory of an alloc node. Its addresses are fixed when the node is made; a launch allocates
 * it.
 */
struct graph_memory
{
  unsigned references; /* nodes and executables that name it, and the allocation while it lives */
  CUdevice device;
  CUcontext context;
  uintptr_t start;
  size_t bytes;
  size_t mapped;
  bool live;
  struct graph_memory *next;
};

struct CUgraphNode_st
{
  uint32_t kind; /* GRAPH_NODE */
  CUgraphNodeType type;
  CUgraph graph;
  CUgraphNode next;
  unsigned id;
  unsigned visited;  /* scratch of a walk through the graph */
  CUgraphNode *from; /* the nodes that it depends on */
  size_t from_count;
  size_t from_room;
  uint64_t time_ns; /* of a kernel */
  uint32_t width;   /* of it, in threads */
  uint64_t value;   /* of the parameter that holds the time */
  uint64_t percent; /* of the one that holds the width */
  void *values[8];
  union
  {
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS set;
    CUDA_HOST_NODE_PARAMS host;
    CUgraph child;
    CUevent event;
    CUdeviceptr freed;
    struct
    {
      CUDA_MEM_ALLOC_NODE_PARAMS params;
      struct graph_memory *memory;
    } alloc;
  };
};

struct CUgraph_st
{
  uint32_t kind; /* GRAPH */
  unsigned id;
  unsigned next_node;
  size_t count;
  unsigned memory_nodes;
  unsigned instances; /* executables made of it */
  CUgraphNode first, last;
};

static inline bool
graph_valid (CUgraph graph)
{
  return graph && graph->kind == GRAPH;
}

static inline bool
node_valid (CUgraphNode node)
{
  return node && node->kind == GRAPH_NODE;
}

/* Returns from the calling function unless NODE is one of the type WANTED.  */
#define OF_TYPE(node, wanted)                                                                      \
  REQUIRE_ARGUMENTS (node_valid (node) && (node)->type == CU_GRAPH_NODE_TYPE_##wanted)

/* A function that answers with MEMBER of a node of the type WANTED.  */
#define NODE_ANSWER(function, wanted, member, answer_type)                                         \
  CUresult cuGraph##function (CUgraphNode node, answer_type *answer)                               \
  {                                                                                                \
    OF_TYPE (node, wanted);                                                                        \
    REQUIRE (answer, CUDA_ERROR_INVALID_VALUE);                                                    \
    *answer = node->member;                                                                        \
    return CUDA_SUCCESS;                                                                           \
  }

/* A capture that is under way.  */
struct capture
{
  uint32_t kind;
  uint64_t id;
  CUgraph graph;
  CUstream origin;
  CUstreamCaptureMode mode;
  pthread_t thread;
  bool invalid;
  bool into_callers_graph;
  CUstream streams; /* all that take part, by capture_next */
  struct capture *next;
};

/* Adds a node that depends on FROM. The caller fills in the rest.  */
CUresult softgpu_add_node (CUgraphNode *node, CUgraph graph, CUgraphNodeType type,
                           const CUgraphNode *from, size_t count);

/* Makes a node like NODE, without its edges.  */
CUresult softgpu_copy_node (CUgraphNode *copy, CUgraph graph, const struct CUgraphNode_st *node,
                            const CUgraphNode *from, size_t count);

/* Whether BYTES from ADDRESS on are one graph's allocation, live or not.  */
bool softgpu_of_a_graph (uintptr_t address, size_t bytes);

void softgpu_hold_graph_memory (struct graph_memory *memory);
void softgpu_let_graph_memory (struct graph_memory *memory);

static inline bool
softgpu_capturing (CUstream stream)
{
  return !default_stream (stream) && stream->capture;
}

/* CHILD becomes the node's, or is destroyed.  */
CUresult softgpu_capture_child (CUstream stream, CUgraph child);
CUresult softgpu_capture_host (CUstream stream, const CUDA_HOST_NODE_PARAMS *params);
CUresult softgpu_capture_copy (CUstream stream, const CUDA_MEMCPY3D *copy);
CUresult softgpu_capture_set (CUstream stream, const CUDA_MEMSET_NODE_PARAMS *set);
CUresult softgpu_capture_kernel (CUstream stream, const CUDA_KERNEL_NODE_PARAMS *params);
CUresult softgpu_capture_alloc (CUstream stream, CUdeviceptr *address, size_t bytes,
                                CUdevice device);
CUresult softgpu_capture_free (CUstream stream, CUdeviceptr address);
CUresult softgpu_capture_record (CUstream stream, CUevent event, bool external);
CUresult softgpu_capture_wait (CUstream stream, CUevent event, bool external);
void softgpu_forget_captured (CUevent event);

/* How many captures are under way.  */
extern _Atomic unsigned softgpu_captures;

/* Before a call that a capture in the global or thread-local mode forbids.  */
CUresult softgpu_check_unsafe (void);

/* Before a call that asks for, or waits for, what STREAM has done.  */
CUresult softgpu_check_stream (CUstream stream);

/* Before work on STREAM: the legacy stream would wait for streams that are being captured.  */
CUresult softgpu_check_implicit (CUstream stream);

/* A stream that is destroyed amid a capture invalidates it.  */
void softgpu_leave_capture (CUstream stream);

/* Returns from the calling function where a stream capture forbids it.  */
#define REQUIRE_SAFE() REQUIRE_SUCCESS (softgpu_check_unsafe ())
