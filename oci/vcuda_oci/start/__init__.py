"""A container's start and end: the wrapper, the claim socket, the release."""
