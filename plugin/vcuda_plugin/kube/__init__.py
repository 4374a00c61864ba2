"""Code of agent and extender: the Kubernetes client, quantities, GPU annotations."""
