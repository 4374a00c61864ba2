/* Before every exported call of a process that has something to attend to.  */

#ifndef SOFTGPU_GATE_H
#define SOFTGPU_GATE_H

#include "driver/driver.h"

/* The error with which the call NAME shall end; 0 when it may go on.  */
int softgpu_gate (const char *name);

#endif
