"""The placement decision, and which of several extenders makes it."""
