/* Preloaded into crun on a machine without CAP_SYS_RESOURCE: crun 1.8 raises RLIMIT_MEMLOCK before
   it loads a device program, and gives up when it may not, although the kernel (from 5.11 on)
   charges BPF to the cgroup and not to this limit.  */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc declares the parameter as an enumeration when _GNU_SOURCE is set.  */
int
setrlimit (__rlimit_resource_t resource, const struct rlimit *limit)
{
  if (syscall (SYS_prlimit64, 0, resource, limit, NULL) == 0)
    return 0;
  return errno == EPERM && resource == RLIMIT_MEMLOCK ? 0 : -1;
}
