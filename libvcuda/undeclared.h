/* Prototypes of functions that the driver's libraries export and no header declares (exports.list).
   Only a hooked function needs one.  */

#pragma once

/* *TABLE is a table of private functions, ID its 16 bytes of UUID.  */
nvmlReturn_t nvmlInternalGetExportTable (const void **table, const void *id);
