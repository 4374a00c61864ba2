/* Runs a native parser on an input; the fuzzer and the comparison with Python's parsers use it.  */

#pragma once

#include <stddef.h>

#define MOST_ANSWER (1 << 17)

/* The answer of the parser that the first byte of INPUT names, to the rest of it. Returns its size;
   0: no such parser.
     c  a config.json              "1" if it may hold a request, else "0"
     w  words, each ended by NUL   the config.json that they create from, the log and its format,
                                   each ended by a NUL; the packet for the claim socket
     s  a config.toml              runtime and state-dir, each ended by a NUL
     l  a line, ended by NUL       its entry in a log of JSON, and in one of text
     a  the claim socket's answer      '+', '-' and the line, or '?'
     p  a container's state        its pid  */
size_t answer (const char *input, size_t size, char out[MOST_ANSWER]);
