/* Graphs: their nodes and edges.  */

#include <stdlib.h>

#include "graph/graph.h"

static _Atomic unsigned next_id = 1;

CUresult
cuGraphCreate (CUgraph *pgraph, unsigned int flags)
{
  REQUIRE_ARGUMENTS (pgraph && flags == 0);
  CUgraph graph = softgpu_new_record (sizeof *graph);
  REQUIRE (graph, CUDA_ERROR_OUT_OF_MEMORY);
  graph->kind = GRAPH;
  graph->id = atomic_fetch_add (&next_id, 1);
  *pgraph = graph;
  return CUDA_SUCCESS;
}

static CUresult
add_dependency (CUgraphNode node, CUgraphNode from)
{
  REQUIRE (node_valid (from) && from->graph == node->graph && from != node,
           CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < node->from_count; i++)
    if (node->from[i] == from)
      return CUDA_ERROR_INVALID_VALUE;
  if (node->from_count == node->from_room)
    {
      size_t room = node->from_room ? 2 * node->from_room : 2;
      CUgraphNode *larger = realloc (node->from, room * sizeof *larger);
      REQUIRE (larger, CUDA_ERROR_OUT_OF_MEMORY);
      node->from = larger;
      node->from_room = room;
    }
  node->from[node->from_count++] = from;
  return CUDA_SUCCESS;
}

static void
free_node (CUgraphNode node)
{
  if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->alloc.memory)
    softgpu_let_graph_memory (node->alloc.memory);
  if (node->type == CU_GRAPH_NODE_TYPE_GRAPH && node->child)
    cuGraphDestroy (node->child);
  free (node->from);
  softgpu_retire (node, sizeof *node);
}

CUresult
softgpu_add_node (CUgraphNode *pnode, CUgraph graph, CUgraphNodeType type, const CUgraphNode *from,
                  size_t count)
{
  REQUIRE_ARGUMENTS (pnode && graph_valid (graph) && (from || !count));
  CUgraphNode node = softgpu_new_record (sizeof *node);
  REQUIRE (node, CUDA_ERROR_OUT_OF_MEMORY);
  node->kind = GRAPH_NODE;
  node->type = type;
  node->graph = graph;
  for (size_t i = 0; i < count; i++)
    {
      CUresult rc = add_dependency (node, from[i]);
      if (rc != CUDA_SUCCESS)
        {
          node->type = CU_GRAPH_NODE_TYPE_EMPTY;
          free_node (node);
          return rc;
        }
    }
  node->id = graph->next_node++;
  if (graph->last)
    graph->last->next = node;
  else
    graph->first = node;
  graph->last = node;
  graph->count++;
  *pnode = node;
  return CUDA_SUCCESS;
}

CUresult
cuGraphDestroyNode (CUgraphNode node)
{
  REQUIRE_ARGUMENTS (node_valid (node));
  CUgraph graph = node->graph;
  bool memory
      = node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  REQUIRE (!memory, CUDA_ERROR_NOT_SUPPORTED);
  CUgraphNode before = NULL;
  for (CUgraphNode other = graph->first; other; other = other->next)
    {
      if (other->next == node)
        before = other;
      size_t kept = 0;
      for (size_t i = 0; i < other->from_count; i++)
        if (other->from[i] != node)
          other->from[kept++] = other->from[i];
      other->from_count = kept;
    }
  *(before ? &before->next : &graph->first) = node->next;
  if (graph->last == node)
    graph->last = before;
  graph->count--;
  free_node (node);
  return CUDA_SUCCESS;
}

CUresult
cuGraphDestroy (CUgraph graph)
{
  REQUIRE_ARGUMENTS (graph_valid (graph));
  for (CUgraphNode next, node = graph->first; node; node = next)
    {
      next = node->next;
      free_node (node);
    }
  softgpu_retire (graph, sizeof *graph);
  return CUDA_SUCCESS;
}

static CUgraphNode
twin (CUgraph graph, unsigned id)
{
  CUgraphNode node = graph->first;
  while (node && node->id != id)
    node = node->next;
  return node;
}

CUresult
softgpu_copy_node (CUgraphNode *pcopy, CUgraph graph, const struct CUgraphNode_st *node,
                   const CUgraphNode *from, size_t count)
{
  REQUIRE_SUCCESS (softgpu_add_node (pcopy, graph, node->type, from, count));
  CUgraphNode copy = *pcopy;
  struct CUgraphNode_st made = *node;
  made.graph = graph;
  made.next = NULL;
  made.id = copy->id;
  made.from = copy->from;
  made.from_count = copy->from_count;
  made.from_room = copy->from_room;
  *copy = made;
  if (node->time_ns && node->kernel.kernelParams == node->values)
    copy->kernel.kernelParams = copy->values;
  for (int i = 0; i < 8; i++)
    if (copy->values[i])
      copy->values[i] = node->values[i] == &node->value ? &copy->value : &copy->percent;
  if (node->type != CU_GRAPH_NODE_TYPE_GRAPH)
    return CUDA_SUCCESS;
  copy->child = NULL;
  return cuGraphClone (&copy->child, node->child);
}

/* A node keeps its number in a clone, so that it can be found there. Memory nodes can't be cloned:
   two graphs would give out the same addresses.  */
CUresult
cuGraphClone (CUgraph *pclone, CUgraph graph)
{
  REQUIRE_ARGUMENTS (pclone && graph_valid (graph));
  REQUIRE (!graph->memory_nodes, CUDA_ERROR_NOT_SUPPORTED);
  CUgraph clone;
  CUresult rc = cuGraphCreate (&clone, 0);
  for (CUgraphNode node = graph->first; node && rc == CUDA_SUCCESS; node = node->next)
    {
      CUgraphNode copy;
      rc = softgpu_copy_node (&copy, clone, node, NULL, 0);
      if (rc == CUDA_SUCCESS)
        copy->id = node->id;
    }
  clone->next_node = graph->next_node;
  for (CUgraphNode node = graph->first; node && rc == CUDA_SUCCESS; node = node->next)
    for (size_t i = 0; i < node->from_count && rc == CUDA_SUCCESS; i++)
      rc = add_dependency (twin (clone, node->id), twin (clone, node->from[i]->id));
  if (rc == CUDA_SUCCESS)
    *pclone = clone;
  else
    cuGraphDestroy (clone);
  return rc;
}

CUresult
cuGraphNodeFindInClone (CUgraphNode *pnode, CUgraphNode original, CUgraph clone)
{
  REQUIRE_ARGUMENTS (pnode && node_valid (original) && graph_valid (clone));
  *pnode = twin (clone, original->id);
  return *pnode ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuGraphAddDependencies (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
  REQUIRE_ARGUMENTS (graph_valid (graph) && (!count || (from && to)));
  for (size_t i = 0; i < count; i++)
    {
      REQUIRE (node_valid (to[i]) && to[i]->graph == graph, CUDA_ERROR_INVALID_VALUE);
      REQUIRE_SUCCESS (add_dependency (to[i], from[i]));
    }
  return CUDA_SUCCESS;
}

CUresult
cuGraphAddDependencies_v2 (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                           const CUgraphEdgeData *edges, size_t count)
{
  (void) edges;
  return cuGraphAddDependencies (graph, from, to, count);
}
