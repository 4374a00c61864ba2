"""Call the driver until all processes of a container are at work, or all are off the GPUs."""
