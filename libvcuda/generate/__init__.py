"""Makes the shim's table of entry points from CUDA's own headers."""
