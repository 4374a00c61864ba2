"""The words that options of ``vcuda ps`` and ``vcuda top`` take.

Each start of ``vcuda`` imports them for its options. What they mean stands in ps_fields.py and
top_screen.py, which take a third of a start to import.
"""

from __future__ import annotations

PS_FILTERS = ("id", "name", "image", "namespace", "pod", "gpu", "policy", "status")
PS_ORDERS = ("name", "gpu", "state", "core", "used", "memory", "waits", "created")

NAME, COMPUTE, MEMORY, WAITS = "name", "compute", "memory", "waits"
TOP_ORDERS = (NAME, COMPUTE, MEMORY, WAITS)
