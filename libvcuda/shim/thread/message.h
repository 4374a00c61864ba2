/* What CUDA's error codes cannot say, as one line on the guest's standard error.  */

#ifndef VCUDA_MESSAGE_H
#define VCUDA_MESSAGE_H

/* Strings of the source, put together by the compiler: a signal handler may say it.  */
#define VCUDA_LINE(where, what, mend) "libvcuda: " where ": " what "; " mend "\n"

void vcuda_say (const char *line);

#endif
