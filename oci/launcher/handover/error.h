/* Error lines of the launcher, on stderr and in the runtime's --log file.  */

#pragma once

#include <limits.h>
#include <stddef.h>

/* The command line after the program's name.  */
extern char **report_words;

/* The allocation's id for error lines; "": none.  */
extern const char *report_allocation;

/* Writes the line as an entry of logrus' json or text format; returns its size.  */
size_t log_entry (const char *format, const char *now, const char *line, char entry[2 * PATH_MAX]);

/* Reports the error and exits with 1. `message`: where, what and hint in one.  */
_Noreturn void die_with (const char *message);
_Noreturn void die (const char *where, const char *what, const char *hint);
