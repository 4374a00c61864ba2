"""Plan and carry out moves of many containers: empty a GPU, or make room for a request."""
