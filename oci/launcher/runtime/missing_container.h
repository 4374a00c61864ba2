/* Recognises `delete --force` of a container that is already deleted.  */

#pragma once

#include <stdbool.h>

/* Whether the command line only deletes, by force, one container that RUNTIME does not know.  */
bool deletes_missing_container (char **words, const char *runtime);
