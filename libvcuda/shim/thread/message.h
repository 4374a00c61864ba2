/* One line on the program's standard error, for what no CUDA error code can express.  */

#pragma once

/* The compiler joins the strings, so a signal handler can write the line.  */
#define VCUDA_LINE(where, what, hint) "libvcuda: " where ": " what "; " hint "\n"

void vcuda_report (const char *line);
