/* What the fuzz target's parts share: a host with two pages, a driver that counts to the byte, and
   a clock that advances only when a thread sleeps.  */

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "real.h"
#include "vcuda_abi.h"

/* The host's own mappings of the pages, in a mount namespace of the target's; and both as a host
   makes them, with half of the time of one GPU.  */
extern struct vcuda_limits *limits;
extern struct vcuda_usage *usage;
void host_open_pages (void);
void host_make_pages (void);

/* The driver's answers, put into the shim's table.  */
void driver_install (void);
/* Puts gates before its functions, as a container with calls_ask has them, or takes them off.  */
void driver_gate (bool gated);
void driver_install_time (void);

/* The events of the one context end with it.  */
void driver_forget_events (void);

/* How many bytes of device memory are allocated.  */
extern uint64_t driver_held;

/* The context that is current.  */
#define DRIVER_CONTEXT ((CUcontext) 64)

/* What the next launch or set takes.  */
extern uint64_t driver_kernel_ns;

/* The pointers granted and not freed yet.  */
#define MOST_PIECES 64
extern CUdeviceptr driver_pieces[MOST_PIECES];

/* Virtual time in nanoseconds, and how often a thread slept.  */
extern uint64_t clock_ns;
extern unsigned clock_sleeps;

/* Called within each driver call and each sleep: what changes the pages meanwhile.  */
extern void (*fuzz_meanwhile) (void);

/* The input, and how much of it is left.  */
extern const uint8_t *input;
extern size_t input_left;

/* Its next BYTES, big end first; 0 when there is no more.  */
uint64_t take (unsigned bytes);

/* Its next number: half of the time one near which things break.  */
uint64_t number (void);

/* What the host allows at first.  */
#define LIMIT ((uint64_t) 1 << 30)

#define MUST_HOLD(truth)                                                                           \
  do                                                                                               \
    if (!(truth))                                                                                  \
      {                                                                                            \
        fprintf (stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #truth);                 \
        __builtin_trap ();                                                                         \
      }                                                                                            \
  while (0)
