"""Names of containers: their engines', their pods', their workloads'."""
