/* Reads of a mapped file that its other users may cut short at any moment.  */

#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Once, before the first reading. SIGBUS stays unblocked in every thread that reads.  */
void mapped_begin (void);

/* Copies SIZE bytes. False: a part of them is no longer in the file. Later reads of the caller are
   not made before this one.  */
bool mapped_read (void *to, const void *from, size_t size);
