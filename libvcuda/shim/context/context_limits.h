/* The charge for a context's limits (cuCtxSetLimit).  */

#ifndef VCUDA_CONTEXT_LIMITS_H
#define VCUDA_CONTEXT_LIMITS_H

/* In the child after a fork.  */
void vcuda_limits_forget (void);

#endif
