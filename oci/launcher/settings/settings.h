/* Settings of config.toml that the native programs use.  */

#pragma once

#include <limits.h>

#include "settings/small_file.h"
#include "settings/trusted.h"

#define DEFAULT_STATE_DIR "/run/vcuda"

/* Returns the value of `key = "…"` in config.toml, or `otherwise`. A line of any other form is
   ignored here: Python reports mistakes.  */
const char *setting (const struct file_text *config, const char *key, const char *otherwise,
                     char value[PATH_MAX]);

/* Reads config.toml; a missing file reads as empty, so each setting has its default. NULL: another
   user could have changed it, or it cannot be read; WHY says which.  */
const struct file_text *settings_at (const char *path, struct distrust *why);
