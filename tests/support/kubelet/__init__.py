"""Fake kubelets, and nodes of a cluster with pods and claims."""
