"""The kubelet's device plugin: registration, device ids, Allocate."""
