"""Values without input or output: requests, allocations, GPUs, policies, sizes, names, errors."""
