"""The arbiter of compute grants; the node agent and the scheduler extender will live here."""
