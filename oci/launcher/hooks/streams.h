/* Keeps hooks from writing to files of the host.  */

#pragma once

#include <stdbool.h>

/* Redirects standard output and error to /dev/null unless they are a pipe, a socket or a terminal.
   Error lines then go to the runtime's log and its own standard error (created_container.py).
   False: a stream could not be redirected.  */
bool leave_files_of_host (void);
