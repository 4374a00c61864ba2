"""The node agent and the scheduler extender will live here; nothing is built yet."""
