"""``make soak``: thousands of starts leave nothing behind and do not slow down."""
