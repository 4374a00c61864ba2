"""The decisions that this node keeps: <state-dir>/decisions/<pod uid>.json, one a pod."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vcuda_oci import decision, files, names

if TYPE_CHECKING:
    from collections.abc import Collection

    from vcuda_oci.decision import Decision

_SUFFIX = ".json"


class DecisionFolder:
    """Its one writer's. A kill at any moment leaves whole records, and what `keep_only` removes.

    That the folder is there tells containers that somebody follows the pods. Raises OSError, also
    when somebody emptied the state-dir: whoever starts anew has it whole again.
    """

    def __init__(self, state_dir: str) -> None:
        self.path = f"{state_dir}/{names.DECISIONS}"
        os.makedirs(self.path, 0o755, exist_ok=True)

    def put(self, uid: str, decision: Decision) -> None:
        path, content = f"{self.path}/{uid}{_SUFFIX}", decision.dump().encode() + b"\n"
        try:
            if files.read(path) == content:
                return
        except OSError:
            pass
        files.replace(path, content, 0o644)

    def get(self, uid: str) -> Decision | None:
        """Return what is kept for a pod; None if there is nothing, or the file is damaged."""
        try:
            return decision.parse(files.read(f"{self.path}/{uid}{_SUFFIX}").decode())
        except (OSError, ValueError):
            return None

    def remove(self, uid: str) -> None:
        files.remove(f"{self.path}/{uid}{_SUFFIX}")

    def keep_only(self, uids: Collection[str]) -> None:
        kept = {uid + _SUFFIX for uid in uids}
        for name in os.listdir(self.path):
            if name not in kept:
                files.remove(f"{self.path}/{name}")
