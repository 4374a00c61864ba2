/* What the calls of both libraries begin with, and the names of their versions.  */

#pragma once

#define REQUIRE(condition, error)                                                                  \
  do                                                                                               \
    if (!(condition))                                                                              \
      return (error);                                                                              \
  while (0)

/* Returns what CALL returns, unless that is success.  */
#define REQUIRE_SUCCESS(call)                                                                      \
  do                                                                                               \
    {                                                                                              \
      __auto_type returned = (call);                                                               \
      REQUIRE (returned == 0, returned);                                                           \
    }                                                                                              \
  while (0)

/* Another name of a function that has the same arguments.  */
#define ALSO_NAMED(name, function) __typeof__ (function) name __attribute__ ((alias (#function)))
