/* glibc 2.34 moved some functions into libc under a new version. Binding to the old version keeps
   the shim loadable in images with glibc 2.17 and later; libdl.so.2 and libpthread.so.0 exist in
   all of them.  */

#pragma once

/* The version that each machine's glibc began with.  */
#ifdef __aarch64__
#  define VCUDA_FIRST_GLIBC "GLIBC_2.17"
#else
#  define VCUDA_FIRST_GLIBC "GLIBC_2.2.5"
#endif
#define VCUDA_OLD_GLIBC(function)                                                                  \
  __asm__ (".symver " #function ", " #function "@" VCUDA_FIRST_GLIBC)
