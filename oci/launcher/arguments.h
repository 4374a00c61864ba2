/* Options of runc and crun that take the next word as their value. Source: runc 1.1 and crun 1.8
   --help. oci/vcuda_oci/bundle.py has the same lists; a test compares them.  */

#ifndef VCUDA_ARGUMENTS_H
#define VCUDA_ARGUMENTS_H

static const char *const global_values[]
    = { "log", "log-format", "log-level", "root", "criu", "rootless", "cgroup-manager", NULL };

static const char *const create_values[]
    = { "bundle",   "console-socket", "pid-file",    "preserve-fds",      "config",
        "f",        "image-path",     "work-path",   "parent-path",       "manage-cgroups-mode",
        "empty-ns", "status-fd",      "lsm-profile", "lsm-mount-context", "page-server",
        NULL };

#endif
