/* What a client may have the mock driver do: a launch with this as EXTRA calls FUNCTION, or has the
   next wait call it. From then on each event pair shows ELAPSED_MS.  */

#ifndef MOCK_H
#define MOCK_H

#include <stdbool.h>

struct mock_interruption
{
  void (*function) (void);
  bool in_wait;
  float elapsed_ms;
};

/* In the driver only.  */
extern void (*mock_in_wait) (void);
extern float mock_elapsed_ms;

#endif
