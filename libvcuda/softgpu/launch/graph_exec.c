/* Executable graphs: a graph laid out in an order that its edges allow, and its launches.  */

#include <stdlib.h>

#include "copy/copy.h"
#include "launch/graph_exec.h"
#include "memory/allocations.h"
#include "stream/streams.h"

static CUresult
add_step (CUgraphExec exec, CUgraphNode node)
{
  if (exec->count == exec->room)
    {
      size_t room = exec->room ? 2 * exec->room : 16;
      struct step *larger = realloc (exec->step, room * sizeof *larger);
      REQUIRE (larger, CUDA_ERROR_OUT_OF_MEMORY);
      exec->step = larger;
      exec->room = room;
    }
  exec->step[exec->count++] = (struct step){ .of = node, .node = *node };
  if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    {
      exec->allocates = true;
      softgpu_hold_graph_memory (node->alloc.memory);
    }
  return CUDA_SUCCESS;
}

/* Each pass takes the nodes with all dependencies taken; nodes mostly come after theirs, so that
   one pass is the rule. Nodes that no pass takes wait for each other.  */
CUresult
softgpu_lay_out (CUgraphExec exec, CUgraph graph)
{
  size_t left = graph->count;
  for (CUgraphNode node = graph->first; node; node = node->next)
    node->visited = 0;
  while (left)
    {
      size_t before = left;
      for (CUgraphNode node = graph->first; node; node = node->next)
        {
          bool ready = !node->visited;
          for (size_t i = 0; ready && i < node->from_count; i++)
            ready = node->from[i]->visited;
          if (!ready)
            continue;
          node->visited = 1;
          left--;
          REQUIRE_SUCCESS (node->type == CU_GRAPH_NODE_TYPE_GRAPH
                               ? softgpu_lay_out (exec, node->child)
                               : add_step (exec, node));
        }
      REQUIRE (left < before, CUDA_ERROR_INVALID_VALUE);
    }
  return CUDA_SUCCESS;
}

static void
dismantle (CUgraphExec exec)
{
  for (size_t i = 0; i < exec->count; i++)
    if (exec->step[i].node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
      softgpu_let_graph_memory (exec->step[i].node.alloc.memory);
  if (exec->graph->kind == GRAPH && exec->graph->id == exec->graph_id)
    exec->graph->instances--;
  free (exec->step);
  softgpu_retire (exec, sizeof *exec);
}

CUresult
cuGraphInstantiateWithFlags (CUgraphExec *pexec, CUgraph graph, unsigned long long flags)
{
  REQUIRE_DRIVER ();
  const unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
                                   | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
                                   | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  REQUIRE (pexec && graph_valid (graph) && (flags & ~known) == 0, CUDA_ERROR_INVALID_VALUE);
  /* Two executables would give out the same addresses.  */
  REQUIRE (!graph->memory_nodes || !graph->instances, CUDA_ERROR_NOT_SUPPORTED);
  CUgraphExec exec = softgpu_new_record (sizeof *exec);
  REQUIRE (exec, CUDA_ERROR_OUT_OF_MEMORY);
  *exec = (struct CUgraphExec_st){
    .kind = GRAPH_EXEC, .flags = flags, .graph = graph, .graph_id = graph->id
  };
  graph->instances++;
  CUresult rc = softgpu_lay_out (exec, graph);
  if (rc != CUDA_SUCCESS)
    {
      dismantle (exec);
      return rc;
    }
  *pexec = exec;
  return CUDA_SUCCESS;
}

CUresult
cuGraphInstantiate_v2 (CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                       size_t log_bytes)
{
  if (error_node)
    *error_node = NULL;
  if (log && log_bytes)
    *log = 0;
  return cuGraphInstantiateWithFlags (exec, graph, 0);
}

ALSO_NAMED (cuGraphInstantiate, cuGraphInstantiate_v2);

CUresult
cuGraphInstantiateWithParams (CUgraphExec *exec, CUgraph graph,
                              CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
  REQUIRE_DRIVER ();
  REQUIRE (params, CUDA_ERROR_INVALID_VALUE);
  CUresult rc = cuGraphInstantiateWithFlags (exec, graph, params->flags);
  params->hErrNode_out = NULL;
  params->result_out
      = rc == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return rc;
}

CUresult
cuGraphExecDestroy (CUgraphExec exec)
{
  REQUIRE_DRIVER ();
  REQUIRE (exec_valid (exec), CUDA_ERROR_INVALID_VALUE);
  dismantle (exec);
  return CUDA_SUCCESS;
}

CUresult
cuGraphExecGetFlags (CUgraphExec exec, cuuint64_t *flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (exec_valid (exec) && flags, CUDA_ERROR_INVALID_VALUE);
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

/* Takes, before anything runs, the memory that the launch will hold at its most.  */
static CUresult
take_memory (CUgraphExec exec)
{
  uint64_t now[SOFTGPU_MAX_GPUS] = { 0 }, most[SOFTGPU_MAX_GPUS] = { 0 };
  for (size_t i = 0; i < exec->count; i++)
    {
      const struct CUgraphNode_st *node = &exec->step[i].node;
      if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        {
          struct graph_memory *memory = node->alloc.memory;
          if (memory->live)
            {
              REQUIRE (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH,
                       CUDA_ERROR_INVALID_VALUE);
              softgpu_release (memory->start, GRAPHS);
            }
          now[memory->device] += memory->bytes;
          if (most[memory->device] < now[memory->device])
            most[memory->device] = now[memory->device];
        }
      else if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        for (size_t j = 0; j < i; j++)
          if (exec->step[j].node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC
              && exec->step[j].node.alloc.memory->start == node->freed)
            now[exec->step[j].node.alloc.memory->device] -= exec->step[j].node.alloc.memory->bytes;
    }
  for (CUdevice device = 0; device < driver.device_count; device++)
    if (most[device] && !softgpu_reserve_graph_memory (device, most[device]))
      return CUDA_ERROR_OUT_OF_MEMORY;
  return CUDA_SUCCESS;
}

static CUresult
run_step (const struct CUgraphNode_st *node, CUstream stream)
{
  switch (node->type)
    {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return softgpu_copy (&node->copy, stream);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return softgpu_set (&node->set, stream);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return softgpu_begin_graph_memory (node->alloc.memory);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return cuMemFreeAsync (node->freed, stream);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return softgpu_record_event (node->event, stream);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return cuStreamWaitEvent (stream, node->event, 0);
    case CU_GRAPH_NODE_TYPE_HOST:
      return cuLaunchHostFunc (stream, node->host.fn, node->host.userData);
    default:
      return CUDA_SUCCESS;
    }
}

/* Adds a kernel to WORK: one like those before. By the kind clock any is.  */
static bool
merge (struct softgpu_command *work, const struct CUgraphNode_st *kernel)
{
  bool kind = driver.tie.state->clock == SOFTGPU_KIND;
  if (!kind && work->count && (work->piece_ns != kernel->time_ns || work->width != kernel->width))
    return false;
  work->left_ns += kernel->time_ns;
  work->piece_ns = kernel->time_ns;
  work->width = kernel->width;
  work->count++;
  return true;
}

static CUresult
launch_work (CUstream stream, struct softgpu_command *work)
{
  CUresult rc = work->count ? softgpu_submit_to (stream, work, NULL, NULL) : CUDA_SUCCESS;
  *work = (struct softgpu_command){ .kind = SOFTGPU_KERNEL };
  return rc;
}

static CUresult
run_steps (CUgraphExec exec, CUstream stream)
{
  CUresult rc = exec->allocates ? take_memory (exec) : CUDA_SUCCESS;
  struct softgpu_command work = { .kind = SOFTGPU_KERNEL };
  for (size_t i = 0; i < exec->count && rc == CUDA_SUCCESS; i++)
    {
      const struct step *step = &exec->step[i];
      bool kernel = step->node.type == CU_GRAPH_NODE_TYPE_KERNEL;
      if (step->disabled || step->node.type == CU_GRAPH_NODE_TYPE_EMPTY
          || (kernel && merge (&work, &step->node)))
        continue;
      rc = launch_work (stream, &work);
      if (kernel)
        merge (&work, &step->node);
      else if (rc == CUDA_SUCCESS)
        rc = run_step (&step->node, stream);
    }
  return rc == CUDA_SUCCESS ? launch_work (stream, &work) : rc;
}

CUresult
cuGraphLaunch (CUgraphExec exec, CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE (exec_valid (exec), CUDA_ERROR_INVALID_VALUE);
  if (softgpu_captures)
    {
      if (softgpu_capturing (stream))
        return softgpu_capture_graph (stream, exec);
      REQUIRE_SUCCESS (softgpu_check_implicit (stream));
    }
  REQUIRE_STREAM (context, stream);
  softgpu_take_submit_time (&driver.tie);
  return run_steps (exec, stream);
}

CUresult
cuGraphUpload (CUgraphExec exec, CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE (exec_valid (exec), CUDA_ERROR_INVALID_VALUE);
  REQUIRE_STREAM (context, stream);
  return CUDA_SUCCESS;
}
