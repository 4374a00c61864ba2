"""Fences other than turns: GPU instances under MIG, and MPS with its daemons and servers."""
