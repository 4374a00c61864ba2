/* The turn keeper sleeps on a word of the usage page for each GPU.  */

#pragma once

/* Has the keeper read what this container says of GPU.  */
void vcuda_ring (int gpu);
