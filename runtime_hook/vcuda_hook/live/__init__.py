"""Live containers as this host sees them: names, usage, processes, state.

The node agent reads them too.
"""
