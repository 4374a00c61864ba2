"""Placement decisions of this node's pods: one file <state-dir>/decisions/<pod uid>.json each."""

from __future__ import annotations

import os
from collections.abc import Collection

from vcuda_oci.ledger import decision
from vcuda_oci.ledger.decision import Decision
from vcuda_oci.model import names
from vcuda_oci.system import files

_SUFFIX = ".json"


class DecisionFolder:
    """Write, read and remove decision files; only one process may write.

    A kill at any moment leaves only complete decision files, and temporary files that `retain_only`
    removes. While the folder exists, containers know that the agent watches the pods. Methods raise
    OSError, also when the state-dir was emptied: the next start of the process creates it again.
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
        """Return the decision of a pod; None if there is no file, or it is damaged."""
        try:
            return decision.parse(files.read(f"{self.path}/{uid}{_SUFFIX}").decode())
        except (OSError, ValueError):
            return None

    def remove(self, uid: str) -> None:
        files.remove(f"{self.path}/{uid}{_SUFFIX}")

    def retain_only(self, uids: Collection[str]) -> None:
        kept = {uid + _SUFFIX for uid in uids}
        for name in os.listdir(self.path):
            if name not in kept:
                files.remove(f"{self.path}/{name}")
