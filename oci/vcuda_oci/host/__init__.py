"""What the host has: GPUs, device nodes, driver files. Calls NVML through ctypes."""
