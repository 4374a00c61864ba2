/* The driver's libraries.  */

#pragma once

#include <stdint.h>

/* The names of all entries, in build/generated/entries.S: text, and where each name begins in it.
 */
extern const char vcuda_entry_names[];
extern const uint32_t vcuda_entry_name_offsets[];

/* The name of entry INDEX of the table.  */
const char *vcuda_entry_name (unsigned index);

/* The driver's function of entry INDEX, or NULL. Leaves the table as it is.  */
void *vcuda_driver_symbol (unsigned index);

/* Finds the driver's function for entry INDEX, stores it, or its gate, in `real`, and returns what
   to call: that, or a function that returns an error in the library's own codes. Called by
   entries.S.  */
void *vcuda_resolve (unsigned index);
