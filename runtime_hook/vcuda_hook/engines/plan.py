"""The settings that `vcuda configure` adds to an engine's file."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .text_edit import Setting

# Engines of `vcuda configure`; EVERY with --undo only.
ENGINES = ("docker", "containerd", "crio", "podman")
EVERY = "all"
# The runtime's name in every engine, as in `docker run --runtime=vcuda`.
NAME = "vcuda"


class Options:
    """path: the engine's file. program: vcuda's runtime, or hook, by its full path.

    settings: vcuda's own settings file. default: make it the engine's default runtime. always: call
    the hook for each container, not only for those with an annotation of a request.
    """

    def __init__(
        self, path: str, program: str, settings: str, default: bool = False, always: bool = False
    ) -> None:
        self.path, self.program, self.settings = path, program, settings
        self.default, self.always = default, always


class Plan:
    """settings: to add, in this order. notes: for the operator."""

    def __init__(self, settings: list[Setting]) -> None:
        self.settings = settings
        self.notes: list[str] = []
