"""Read the container's state that the low-level runtime writes to a hook's standard input."""

from __future__ import annotations

import os

from ..model import jsontree
from ..model.errors import VcudaError
from ..system import files
from . import bundle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WHERE = "standard input"
HINT = "let the runtime call this hook"
_MOST_BYTES = 16 << 20


class State:
    """A container's state. Source: runtime-spec runtime.md, "State"."""

    def __init__(
        self, id: str, status: str, pid: int, bundle: str, annotations: dict[str, str]
    ) -> None:
        self.id, self.status, self.pid = id, status, pid
        self.bundle, self.annotations = bundle, annotations


def config_of(state: State) -> Any:
    """Parse the container's config.json. Raises VcudaError: no bundle, or it cannot be read."""
    if not state.bundle.startswith("/"):
        raise VcudaError("the state has no bundle", WHERE, HINT)
    return bundle.load_config(os.path.join(state.bundle, "config.json"))


def read() -> bytes:
    """Read standard input; b"" for a terminal. Raises VcudaError: it cannot be read."""
    try:
        if os.isatty(0):  # called by hand: do not wait for input
            return b""
        return files.content(0, _MOST_BYTES, WHERE)
    except OSError as error:
        raise VcudaError(f"cannot be read: {error.strerror}", WHERE, HINT) from error


def parse_state(text: bytes) -> State:
    """Parse a state. Raises VcudaError: not a container's state."""
    try:
        state: Any = jsontree.loads(text.decode())
    except ValueError as error:
        raise VcudaError("not a container's state", WHERE, HINT) from error
    if not isinstance(state, dict) or not isinstance(state.get("id"), str) or not state["id"]:
        raise VcudaError("not a container's state", WHERE, HINT)
    pid, folder, words = state.get("pid"), state.get("bundle"), state.get("annotations")
    status = state.get("status")
    words = words if isinstance(words, dict) else {}
    return State(
        state["id"],
        status if isinstance(status, str) else "",
        pid if type(pid) is int else 0,
        folder if isinstance(folder, str) else "",
        {key: value for key, value in words.items() if isinstance(value, str)},
    )
