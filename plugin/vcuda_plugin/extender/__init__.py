"""The scheduler extender: which node, which GPU. Not on any node's start path."""
