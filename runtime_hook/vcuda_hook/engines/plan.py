"""The settings that `vcuda configure` adds to an engine's file."""

from __future__ import annotations

from dataclasses import dataclass, field

from .text_edit import Setting

# The runtime's name in every engine, as in `docker run --runtime=vcuda`.
NAME = "vcuda"


@dataclass
class Options:
    """path: the engine's file. program: vcuda's runtime, or hook, by its full path.

    settings: vcuda's own settings file. default: make it the engine's default runtime. always: call
    the hook for each container, not only for those with an annotation of a request.
    """

    path: str
    program: str
    settings: str
    default: bool = False
    always: bool = False


@dataclass
class Plan:
    """settings: to add, in this order. notes: for the operator."""

    settings: list[Setting]
    notes: list[str] = field(default_factory=list)
