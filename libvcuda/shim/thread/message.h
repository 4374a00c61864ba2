/* One line on the program's standard error, for what no CUDA error code can express.  */

#ifndef VCUDA_MESSAGE_H
#define VCUDA_MESSAGE_H

/* The compiler joins the strings, so a signal handler can write the line.  */
#define VCUDA_LINE(where, what, hint) "libvcuda: " where ": " what "; " hint "\n"

void vcuda_report (const char *line);

#endif
