/* The intervals of time in which this process had the GPU.  */

#pragma once

#define VCUDA_INTERVALS 16

struct vcuda_intervals
{
  int count;
  double start[VCUDA_INTERVALS];
  double end[VCUDA_INTERVALS];
};

/* Adds [START, END] and returns how much of it was not covered before. Two kernels of two streams
   that wait for each other have overlapping intervals, though the GPU ran them one after the other:
   each moment is charged once.  */
double vcuda_intervals_add (struct vcuda_intervals *set, double start, double end);
