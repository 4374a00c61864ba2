/* The check before every exported call, while the process's attention word is set.  */

#ifndef SOFTGPU_GATE_H
#define SOFTGPU_GATE_H

#include "driver/driver.h"

/* The error that the call NAME must return; 0: it may go on.  */
int softgpu_gate (const char *name);

#endif
