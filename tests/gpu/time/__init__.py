"""Questions of GPU time: the clock, shares, what is charged, and NVML's utilisation."""
