"""What the node agent costs: beside containers, in starts through CRI, claims and scrapes."""
