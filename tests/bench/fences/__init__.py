"""The other fences: MIG, MPS and the driver's own memory limits."""
