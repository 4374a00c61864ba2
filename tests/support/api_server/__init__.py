"""Fake API servers: objects without I/O, their calls, and the server over real sockets."""
