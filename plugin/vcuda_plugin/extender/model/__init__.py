"""Values that the extender computes with: requests, free GPUs, placement on one node. Pure."""
