/* In the child after a fork: its parent's contexts, limits and checkpoints are not the child's, and
   another thread may have held their locks.  */

#pragma once

void vcuda_primaries_forget (void);   /* primary contexts */
void vcuda_limits_forget (void);      /* charges for limits of contexts */
void vcuda_libraries_forget (void);   /* the lock of libraries */
void vcuda_checkpoints_forget (void); /* copies of checkpoints to custom storage */
