/* Room on the GPU: before the driver's refusal reaches the program, other containers give back what
   their pools keep.

   The asker, to which the driver gives no memory within its share, adds 1 to room_asked of the
   usage page, rings the turn keeper, and calls the driver again for ROOM_NS at most.

   The keeper changes trim_asked in the limits pages of the GPU's other containers, seldom.

   The others see that after their next call that has waited for the GPU, and trim their pools.

   Without a keeper or another container on the GPU nothing is asked, and nothing waits.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "real.h"
#include "thread/in_driver.h"

/* One call's wait; begins as zeroes.  */
struct vcuda_room
{
  uint64_t asked_ns, pause_ns;
};

/* After CUDA_ERROR_OUT_OF_MEMORY of the driver for GPU: sleeps a little. Whether to call the driver
   again. Called without locks.  */
bool vcuda_make_room (struct vcuda_room *room, int gpu);

/* Makes CALL, which allocates on GPU, for THREAD, again while room is being made.  */
#define VCUDA_CALL_WITH_ROOM(thread, gpu, call)                                                    \
  ({                                                                                               \
    CUresult room_rc = VCUDA_CALL_DRIVER_OF (thread, call);                                        \
    if (__builtin_expect (room_rc == CUDA_ERROR_OUT_OF_MEMORY, 0))                                 \
      {                                                                                            \
        struct vcuda_room room = { 0 };                                                            \
        while (room_rc == CUDA_ERROR_OUT_OF_MEMORY && vcuda_make_room (&room, gpu))                \
          room_rc = VCUDA_CALL_DRIVER_OF (thread, call);                                           \
      }                                                                                            \
    room_rc;                                                                                       \
  })
