/* Checkpoints that a program of the container makes.  */

#ifndef VCUDA_CHECKPOINTS_H
#define VCUDA_CHECKPOINTS_H

/* In the child after a fork: the copies are its parent's, and another thread may have held the
   lock.  */
void vcuda_checkpoints_forget (void);

#endif
