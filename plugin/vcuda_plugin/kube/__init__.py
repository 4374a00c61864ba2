"""What agent and extender share: the Kubernetes client, quantities, GPU annotations."""
