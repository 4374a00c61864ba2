/* The low-level runtime.  */

#pragma once

#include "settings/small_file.h"

/* The full path of the low-level runtime that config.toml names.  */
const char *low_level_runtime (const struct file_text *config);

/* Replaces this process by the low-level runtime.  */
_Noreturn void become (const char *runtime, char **argv);

/* Runs `program` and returns its wait status; -1: it could not be started. If this process is
   killed, so is the program.  */
int run_to_end (const char *program, char **argv);
