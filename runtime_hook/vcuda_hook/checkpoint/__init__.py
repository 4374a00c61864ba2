"""The driver's calls that take all processes of a container off the GPUs, or put all to work."""
