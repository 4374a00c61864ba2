/* What a client may have the mock driver do: a launch with this as EXTRA calls FUNCTION, or has the
   next wait call it. From then on each event pair shows ELAPSED_MS, and each record of an event
   adds one to RECORDS, if it is not NULL.  */

#pragma once

#include <stdbool.h>

struct mock_interruption
{
  void (*function) (void);
  bool in_wait;
  float elapsed_ms;
  unsigned *records;
};

/* In the driver only.  */
extern void (*mock_in_wait) (void);
extern float mock_elapsed_ms;
extern unsigned *mock_records;
