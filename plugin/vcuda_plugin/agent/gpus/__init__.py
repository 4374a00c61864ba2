"""The node's GPUs: discovery, health and labels."""
