"""The frame of the agent's pages."""

from __future__ import annotations

from ...web import page_frame
from ...web.page_frame import Frame

_LINKS = (("usage", "Usage"), ("graph", "Graph"), ("metrics", "Metrics"))


def page(node: str, here: str, summary: str, content: str) -> bytes:
    """A complete page. here: its path. content: HTML in which the caller has escaped all names."""
    return page_frame.page(Frame(f"{node}: GPUs", f"on {node}", _LINKS, here), summary, content)
