"""Questions of the other fences: the driver's own limit of a cgroup, MIG and MPS."""
