"""The node agent: device plugin, health, arbiter; the scheduler extender will live here."""
