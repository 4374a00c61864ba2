"""Checks for every answer to untrusted bytes."""

from __future__ import annotations

from vcuda_oci.model.errors import VcudaError

# An engine shows it, a log keeps it: a request of megabytes must not come back in its refusal.
MOST_LINE = 4096


def check_line(error: VcudaError) -> None:
    """The error is one line of printable text, and no longer than anyone reads."""
    line = str(error)
    assert line.isprintable(), line
    assert len(line) <= MOST_LINE, f"a line of {len(line)} characters: {line[:200]}"


def check_same(ours: object, theirs: object) -> None:
    """Both halves read the same bytes alike."""
    shown = [repr(read)[:500] for read in (ours, theirs)]
    assert ours == theirs, f"Python reads {shown[0]}, the launcher {shown[1]}"
