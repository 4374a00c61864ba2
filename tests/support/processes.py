"""What the kernel says of processes."""

from __future__ import annotations


def children_of(pid: int) -> list[int]:
    """Ended ones too, until they are waited for."""
    with open(f"/proc/{pid}/task/{pid}/children") as line:
        return [int(word) for word in line.read().split()]


def name_of(pid: int) -> str:
    """As ps shows it; "": it has ended."""
    try:
        with open(f"/proc/{pid}/comm") as name:
            return name.read().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_asleep(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as fields:
        return fields.read().rpartition(")")[2].split()[0] == "S"
