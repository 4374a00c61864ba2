"""GPU instances under MIG, and shares under MPS: its daemons, servers, namespaces, partitions."""
