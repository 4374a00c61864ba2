"""The node agent: what runs once on each node."""
