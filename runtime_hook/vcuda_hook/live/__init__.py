"""Live containers as this host sees them: usage, processes, state, workloads.

The node agent reads them too.
"""
