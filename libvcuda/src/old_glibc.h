/* glibc 2.34 moved these into libc under a new version. Asking for the old one keeps the shim
   loadable in images with glibc 2.17 and later; libdl.so.2 still exists everywhere.  */

#ifndef VCUDA_OLD_GLIBC_H
#define VCUDA_OLD_GLIBC_H

#ifdef __x86_64__
__asm__ (".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__ (".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__ (".symver dlclose, dlclose@GLIBC_2.2.5");
#endif

#endif
