"""The extender with a fake API server, and what kube-scheduler sends it."""
