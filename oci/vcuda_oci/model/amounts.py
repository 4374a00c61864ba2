"""Amounts of several GPUs that one container asks for, as HAMi's resources name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Part(NamedTuple):
    """What goes to `placement.choose` at once. core: percent; above 99 whole GPUs come first.

    memory_bytes, memory_percent: of the part below a whole GPU; both None: as much as of compute.
    """

    core: int
    memory_bytes: int | None = None
    memory_percent: int | None = None


class Amounts(NamedTuple):
    """What a container asks for of each GPU that it was given. any_core: no compute was named, so
    the least is reserved and the rest is what others leave."""

    parts: tuple[Part, ...]
    any_core: bool = False

    @property
    def gpus(self) -> int:
        return len(sizes(self.parts))

    def as_json(self) -> dict[str, Any]:
        return {"parts": [list(part) for part in self.parts], "any_core": self.any_core}


def parse(tree: Any) -> Amounts:
    """What `as_json` said. Raises ValueError: anything else."""
    listed: Any = tree.get("parts") if isinstance(tree, dict) else None
    any_core: Any = tree.get("any_core") if isinstance(tree, dict) else None
    if not (isinstance(listed, list) and 1 <= len(listed) <= 64 and type(any_core) is bool):
        raise ValueError("not amounts of GPUs")
    for part in listed:
        right = (
            isinstance(part, list)
            and len(part) == 3
            and all(number is None or (type(number) is int and number > 0) for number in part)
            and part[0] is not None
            and part[0] <= 6400
            and (part[1] or 1) < 1 << 60
            and (part[2] or 1) <= 100
        )
        if not right:
            raise ValueError("a part of a GPU that makes no sense")
    return Amounts(tuple(Part(*part) for part in listed), any_core)


def sizes(parts: Sequence[Part]) -> list[tuple[int, Part]]:
    """The shares that the parts come to: core percent, and of which part."""
    found = []
    for part in parts:
        whole, fraction = divmod(part.core, 100)
        found += [(100, part)] * whole + ([(fraction, part)] if fraction else [])
    return found
