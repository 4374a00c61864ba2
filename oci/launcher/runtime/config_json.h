/* Whether a config.json may hold a request.  */

#pragma once

#include <stdbool.h>
#include <stddef.h>

bool may_hold_request (const char *text, size_t size);
bool file_may_hold_request (const char *path);
