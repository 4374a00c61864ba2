/* Graphs: queries of nodes and edges.  */

#include <string.h>

#include "graph/graph.h"

/* Answers as CUDA's lists do: without room the number alone; with too much, NULL in what is left.
 */
struct answer
{
  CUgraphNode *list;
  size_t room;
  size_t count;
};

static void
put (struct answer *answer, CUgraphNode node)
{
  if (answer->list && answer->count < answer->room)
    answer->list[answer->count] = node;
  answer->count++;
}

static CUresult
finish (struct answer *answer, size_t *count)
{
  for (size_t i = answer->count; answer->list && i < answer->room; i++)
    answer->list[i] = NULL;
  if (!answer->list || answer->count < answer->room)
    *count = answer->count;
  return CUDA_SUCCESS;
}

static CUresult
list_nodes (CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots)
{
  REQUIRE_ARGUMENTS (graph_valid (graph) && count);
  struct answer answer = { nodes, *count, 0 };
  for (CUgraphNode node = graph->first; node; node = node->next)
    if (!roots || !node->from_count)
      put (&answer, node);
  return finish (&answer, count);
}

CUresult
cuGraphGetNodes (CUgraph graph, CUgraphNode *nodes, size_t *count)
{
  return list_nodes (graph, nodes, count, false);
}

CUresult
cuGraphGetRootNodes (CUgraph graph, CUgraphNode *nodes, size_t *count)
{
  return list_nodes (graph, nodes, count, true);
}

CUresult
cuGraphGetEdges (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
  REQUIRE_ARGUMENTS (graph_valid (graph) && count && !from == !to);
  struct answer sources = { from, *count, 0 }, targets = { to, *count, 0 };
  for (CUgraphNode node = graph->first; node; node = node->next)
    for (size_t i = 0; i < node->from_count; i++)
      {
        put (&sources, node->from[i]);
        put (&targets, node);
      }
  finish (&sources, count);
  return finish (&targets, count);
}

CUresult
cuGraphGetEdges_v2 (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
                    size_t *count)
{
  size_t room = count ? *count : 0;
  CUresult rc = cuGraphGetEdges (graph, from, to, count);
  if (rc == CUDA_SUCCESS && edges)
    memset (edges, 0, room * sizeof *edges);
  return rc;
}

static CUresult
list_neighbours (CUgraphNode node, CUgraphNode *list, size_t *count, bool dependents)
{
  REQUIRE_ARGUMENTS (node_valid (node) && count);
  struct answer answer = { list, *count, 0 };
  if (!dependents)
    for (size_t i = 0; i < node->from_count; i++)
      put (&answer, node->from[i]);
  else
    for (CUgraphNode other = node->graph->first; other; other = other->next)
      for (size_t i = 0; i < other->from_count; i++)
        if (other->from[i] == node)
          put (&answer, other);
  return finish (&answer, count);
}

/* Both versions of a function. The edges of the second have no data here: all are plain.  */
#define NEIGHBOURS(function, dependents)                                                           \
  CUresult cuGraphNodeGet##function (CUgraphNode node, CUgraphNode *list, size_t *count)           \
  {                                                                                                \
    return list_neighbours (node, list, count, dependents);                                        \
  }                                                                                                \
  CUresult cuGraphNodeGet##function##_v2 (CUgraphNode node, CUgraphNode *list,                     \
                                          CUgraphEdgeData *edges, size_t *count)                   \
  {                                                                                                \
    if (edges && count)                                                                            \
      memset (edges, 0, *count * sizeof *edges);                                                   \
    return list_neighbours (node, list, count, dependents);                                        \
  }

NEIGHBOURS (Dependencies, false)
NEIGHBOURS (DependentNodes, true)

/* A function that answers with MEMBER of a graph or a node, HANDLE.  */
#define ANSWER(function, of, valid, member, type)                                                  \
  CUresult cuGraph##function (of handle, type *answer)                                             \
  {                                                                                                \
    REQUIRE_ARGUMENTS (valid (handle) && answer);                                                  \
    *answer = handle->member;                                                                      \
    return CUDA_SUCCESS;                                                                           \
  }

ANSWER (NodeGetType, CUgraphNode, node_valid, type, CUgraphNodeType)
ANSWER (NodeGetContainingGraph, CUgraphNode, node_valid, graph, CUgraph)
ANSWER (NodeGetLocalId, CUgraphNode, node_valid, id, unsigned int)
ANSWER (GetId, CUgraph, graph_valid, id, unsigned int)
