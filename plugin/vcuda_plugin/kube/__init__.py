"""Code of agent and extender: the Kubernetes client, GPU annotations."""
