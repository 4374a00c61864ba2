"""`vcuda why`: why a container or a pod waits, was refused or is slow."""
