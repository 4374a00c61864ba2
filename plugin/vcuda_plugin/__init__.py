"""The node agent: device plugin, health, arbiter; and, apart from it, the scheduler extender."""
