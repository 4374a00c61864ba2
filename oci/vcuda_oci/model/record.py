"""The base of values with fields that are not assigned again: tests/conftest.py refuses it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    R = TypeVar("R", bound="Record")


class Record:
    """Compared, hashed and shown by its fields: what ``__init__`` assigns, in its order."""

    def fields(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def replaced(self: R, **changes: Any) -> R:
        """A copy with other values for some fields."""
        return type(self)(**{**self.fields(), **changes})

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(tuple(self.fields().values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.fields().values()))})"
