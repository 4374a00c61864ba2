"""The extender's HTTP server."""
