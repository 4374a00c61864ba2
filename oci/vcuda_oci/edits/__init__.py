"""Compute a container's edits from an allocation and host facts; apply them. Pure."""
