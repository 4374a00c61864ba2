/* What streams have unmapped from sparse arrays.  */

#ifndef VCUDA_SPARSE_ARRAYS_H
#define VCUDA_SPARSE_ARRAYS_H

#include <stdbool.h>

#include "real.h"

/* Gives back what streams have unmapped by now; true when there was any.  */
bool vcuda_sparse_arrays_settle (void);

/* The arrays of CONTEXT have ended with it.  */
void vcuda_sparse_arrays_end_context (CUcontext context);

/* In the child after a fork.  */
void vcuda_sparse_arrays_forget (void);

#endif
