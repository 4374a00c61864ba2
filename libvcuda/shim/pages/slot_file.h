/* The usage page's file, for its locks, and when a process started.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The file's descriptor, opened again when the program has closed it; -1 when it can't be opened.
   Callable from any thread.  */
int vcuda_usage_descriptor (void);

/* Sets or drops (TYPE is F_WRLCK, F_RDLCK or F_UNLCK) an OFD lock on one byte. False: another
   process holds it.  */
bool vcuda_lock_byte (int fd, off_t byte, short type);

/* One of COUNT bytes on which another process holds a lock, COUNT not 0; -1: none.  */
off_t vcuda_locked_byte (int fd, off_t first, off_t count);

/* In the child after a fork.  */
void vcuda_usage_forget (void);

/* When the process PID (0: this one) started, in clock ticks since boot; 0: there is none.  */
uint64_t vcuda_start_time (int pid);
