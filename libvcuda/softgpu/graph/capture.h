/* Functions that the parts of stream capture share.  */

#pragma once

#include "graph/graph.h"

/* Returns from the calling function if STREAM's capture is invalidated.  */
#define REQUIRE_CAPTURE(stream)                                                                    \
  REQUIRE (!(stream)->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)

/* Makes the stream's next captured node depend on NODES; ADD: and on what it depends on already. */
CUresult softgpu_set_frontier (CUstream stream, const CUgraphNode *nodes, size_t count, bool add);

/* Whether the origin stream waits for everything that the other streams captured.  */
bool softgpu_joined (const struct capture *capture);

void softgpu_join_capture (CUstream stream, struct capture *capture);

/* The capture with this ID while it is under way, else NULL.  */
struct capture *softgpu_find_capture (uint64_t id);

/* Before a call that waits for all of CONTEXT's work.  */
CUresult softgpu_refuse_context (CUcontext context);
