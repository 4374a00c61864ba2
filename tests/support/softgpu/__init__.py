"""Driver roots of the software GPU, clients on them, and virtual time."""
