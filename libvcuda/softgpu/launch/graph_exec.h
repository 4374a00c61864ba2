/* Between the parts that make, launch and change executable graphs.  */

#pragma once

#include "graph/graph.h"

struct CUgraphExec_st
{
  uint32_t kind; /* GRAPH_EXEC */
  unsigned graph_id;
  CUgraph graph; /* may be destroyed before this is */
  cuuint64_t flags;
  struct step *step;
  size_t count, room;
  bool allocates; /* a step does */
};

/* A node, as it was when the executable was made.  */
struct step
{
  CUgraphNode of;
  struct CUgraphNode_st node;
  bool disabled;
};

static inline bool
exec_valid (CUgraphExec exec)
{
  return exec && exec->kind == GRAPH_EXEC;
}

/* Appends the nodes of GRAPH in an order that its edges allow.  */
CUresult softgpu_lay_out (CUgraphExec exec, CUgraph graph);

/* A launch of EXEC into the capture of STREAM.  */
CUresult softgpu_capture_graph (CUstream stream, const struct CUgraphExec_st *exec);
