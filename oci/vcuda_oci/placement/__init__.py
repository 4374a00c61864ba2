"""Choose GPUs for a request, with or without a placement decision: pure."""
