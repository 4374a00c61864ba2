/* Between the parts of stream capture.  */

#ifndef SOFTGPU_CAPTURE_H
#define SOFTGPU_CAPTURE_H

#include "graph/graph.h"

/* Returns from the calling function when STREAM's capture has gone wrong.  */
#define REQUIRE_CAPTURE(stream)                                                                    \
  REQUIRE (!(stream)->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)

/* Makes NODES what the stream's next captured node depends on, alone or besides what it has.  */
bool softgpu_set_frontier (CUstream stream, const CUgraphNode *nodes, size_t count, bool add);

/* Whether all that the other streams captured comes before what the origin waits for.  */
bool softgpu_joined (const struct capture *capture);

void softgpu_join_capture (CUstream stream, struct capture *capture);

/* The capture with this ID while it is under way, else NULL.  */
struct capture *softgpu_find_capture (uint64_t id);

/* Before a call that waits for all of CONTEXT's work.  */
CUresult softgpu_refuse_context (CUcontext context);

#endif
