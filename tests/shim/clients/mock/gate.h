/* The functions of the driver mock_gate.c, as their callers see them.  */

#pragma once

#include <stdint.h>

#define GATE_PARAMETERS                                                                            \
  uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h,  \
      uint64_t i, double p, double q, double r, double s, double t, double u, double v, double w
#define GATE_ARGUMENTS a, b, c, d, e, f, g, h, i, p, q, r, s, t, u, v, w

/* Less than 2^48 with small arguments.  */
#define GATE_SUM                                                                                   \
  ((a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * g + 17 * h + 19 * i                          \
    + (uint64_t) (23 * p + 29 * q + 31 * r + 37 * s + 41 * t + 43 * u + 47 * v + 53 * w))          \
   & 0xffffffffffffull)
#define GATE_COUNT_SHIFT 48

#define CALL_BACK 0x11111111ull
#define STAY 0x22222222ull

typedef uint64_t gate_function (GATE_PARAMETERS);
