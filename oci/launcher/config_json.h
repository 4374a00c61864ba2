/* Whether a config.json may hold a request.  */

#ifndef VCUDA_CONFIG_JSON_H
#define VCUDA_CONFIG_JSON_H

#include <stdbool.h>
#include <stddef.h>

bool may_hold_request (const char *text, size_t size);
bool file_may_hold_request (const char *path);

#endif
