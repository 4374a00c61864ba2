/* The calls that create and destroy contexts.  */

#ifndef VCUDA_CONTEXTS_H
#define VCUDA_CONTEXTS_H

/* In the child after a fork: the parent's primary contexts are not the child's.  */
void vcuda_primaries_forget (void);

#endif
