/* Writes the files of a driver root.  */

#pragma once

#include <stdarg.h>

/* "softgpu: WHERE: WHAT; HINT" on stderr, then exit with STATUS.  */
void fail (int status, const char *where, const char *what, const char *hint)
    __attribute__ ((noreturn));

/* Puts a formatted path into BUFFER of 4096 bytes, or fails.  */
const char *path_in (char *buffer, const char *format, ...) __attribute__ ((format (printf, 2, 3)));

/* mkdir -p.  */
void make_folders (const char *path);

void copy_file (const char *from, const char *to, unsigned mode);
void write_text (const char *path, const char *text);
void make_link (const char *target, const char *path);
void make_node (const char *path, unsigned major, unsigned minor);
