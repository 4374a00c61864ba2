/* Values of softgpu's options. Each function parses all of TEXT, or fails with an error line that
   names OPTION and what it takes.  */

#pragma once

#include <stdint.h>

uint64_t option_number (const char *option, const char *text, uint64_t least, uint64_t most);

/* Bytes, with PER behind the unit.  */
uint64_t option_size (const char *option, const char *text, const char *per);

/* Nanoseconds, at least LEAST: 0, or a whole number of microseconds.  */
uint64_t option_time (const char *option, const char *text, uint64_t least);

/* The index of one of WORDS, which NULL ends.  */
unsigned option_word (const char *option, const char *text, const char *const words[]);
