"""What the host has: GPUs, device nodes, driver files. NVML is read through ctypes."""
