"""What a record says of a container that is off the GPU, or on the way off or back."""

from __future__ import annotations

from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Steps. Its shares occupy the GPUs during the first and the last.
SUSPENDING, SUSPENDED, WAITING, RESUMING = "suspending", "suspended", "waiting", "resuming"
_OFF = (SUSPENDED, WAITING)
_STEPS = (SUSPENDING, *_OFF, RESUMING)

# Reasons: `vcuda suspend`; no calls for a time; others take their turn on the GPU; `vcuda drain`.
BY_ORDER, BY_IDLENESS, BY_ROTATION, BY_DRAIN = "order", "idle", "rotation", "drain"
_REASONS = (BY_ORDER, BY_IDLENESS, BY_ROTATION, BY_DRAIN)
# Those that end by the container's next call.
UNTIL_CALL = (BY_IDLENESS, BY_ROTATION)
_END_OF_TIME = 1 << 40
_MOST_BYTES = 1 << 64


class Suspension(Record):
    """A container's suspension.

    step: where it is; a step that no process works on is completed by `repair`. by: its reason.
    since: when it began, in seconds since 1970. bytes: what it holds off the GPUs, by UUID, as the
    container itself reported it. wanted: since when its resume waits for room, in seconds since
    1970; 0: it does not wait. needed: what the driver needs to bring it back, by UUID, as NVML
    reported it before; {}: unknown. moves: during a move the GPU that takes the place of another,
    by that one's UUID; the record's shares name the other until the container is back at work.
    asked: False: the driver has not been called yet for any process. found: of processes that their
    own user had locked or checkpointed, by pid: the start time (clock ticks since boot) and the
    state (CUprocessState) that they are left in, or come back to.
    """

    def __init__(
        self,
        step: str,
        by: str,
        since: float,
        bytes: dict[str, int],
        wanted: float = 0,
        needed: dict[str, int] | None = None,
        moves: dict[str, str] | None = None,
        asked: bool = True,
        found: dict[str, list[int]] | None = None,
    ) -> None:
        self.step, self.by, self.since = step, by, since
        self.bytes, self.wanted, self.needed = bytes, wanted, needed or {}
        self.moves = moves or {}
        self.asked, self.found = asked, found or {}

    @property
    def is_off(self) -> bool:
        """Whether the container's shares are free for others."""
        return self.step in _OFF

    @property
    def has_left(self) -> bool:
        """Whether its GPUs are the new ones of `moves`."""
        return self.step == RESUMING

    def as_json(self) -> dict[str, Any]:
        """Without `moves`, `asked` and `found` where they have their usual values."""
        fields = self.fields()
        for name, usual in (("moves", {}), ("asked", True), ("found", {})):
            if fields[name] == usual:
                del fields[name]
        return fields


def parse(fields: Any) -> Suspension:
    """Raises TypeError, ValueError: not a whole suspension."""
    found = Suspension(**fields)
    right = (
        found.step in _STEPS
        and found.by in _REASONS
        and all(_is_time(time) for time in (found.since, found.wanted))
        and all(_are_sizes(held) for held in (found.bytes, found.needed))
        and isinstance(found.moves, dict)
        and all(isinstance(uuid, str) for uuid in [*found.moves, *found.moves.values()])
        and isinstance(found.asked, bool)
        and _are_states(found.found)
    )
    if not right:
        raise ValueError("invalid suspension")
    return found


def _are_sizes(value: Any) -> bool:
    return isinstance(value, dict) and all(
        type(size) is int and 0 <= size < _MOST_BYTES for size in value.values()
    )


def _are_states(value: Any) -> bool:
    return isinstance(value, dict) and all(
        pid.isdigit() and isinstance(each, list) and [type(one) for one in each] == [int, int]
        for pid, each in value.items()
    )


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < _END_OF_TIME
