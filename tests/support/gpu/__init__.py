"""Drivers' files, a container's view of a GPU without a container, and MIG nodes."""
