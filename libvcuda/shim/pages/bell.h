/* The turn keeper sleeps on a word of the usage page for each GPU.  */

#ifndef VCUDA_BELL_H
#define VCUDA_BELL_H

/* Has the keeper read what this container says of GPU.  */
void vcuda_ring (int gpu);

#endif
