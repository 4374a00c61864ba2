"""`vcuda run`: a container on a share without an engine."""
