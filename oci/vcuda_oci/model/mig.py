"""What GPU instances a GPU in MIG mode can have, and has."""

from __future__ import annotations

from collections.abc import Sequence

from .record import Record


class Profile(Record):
    """One kind of GPU instance of a model.

    id: the driver's. slices: compute slices. starts: the first memory slice of each place. width:
    memory slices. most: instances at a time.
    """

    def __init__(
        self,
        id: int,
        name: str,
        slices: int,
        memory_bytes: int,
        starts: Sequence[int],
        width: int,
        most: int,
    ) -> None:
        self.id, self.name, self.slices, self.memory_bytes = id, name, slices, memory_bytes
        self.starts, self.width, self.most = tuple(starts), width, most

    def bits(self, start: int) -> int:
        """The memory slices of an instance at `start`, one bit each."""
        return (1 << self.width) - 1 << start


class Layout(Record):
    """What a GPU in MIG mode can have, and has. taken: (profile id, start, width) of each instance,
    also of one that is still being created."""

    def __init__(
        self,
        uuid: str,
        memory_bytes: int,
        profiles: Sequence[Profile],
        taken: Sequence[tuple[int, int, int]],
    ) -> None:
        self.uuid, self.memory_bytes = uuid, memory_bytes
        self.profiles, self.taken = tuple(profiles), tuple(taken)

    @property
    def slices(self) -> int:
        """All compute slices."""
        return max([profile.slices for profile in self.profiles], default=0)
