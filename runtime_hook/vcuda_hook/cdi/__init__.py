"""`vcuda cdi`: CDI specs of the host's GPUs and of named slices."""
