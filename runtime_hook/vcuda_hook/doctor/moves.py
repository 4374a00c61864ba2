"""Check what drains and moves have left: drained GPUs, and device nodes after a killed move."""

from __future__ import annotations

import os
import time

from vcuda_oci.ledger import unhealthy
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.ledger.unhealthy import Drain
from vcuda_oci.system import own_lock
from vcuda_oci.system.settings_file import Config

from ..drain import drain
from ..names import container_names
from ..text import table
from . import finding
from .finding import INFO, OK, WARNING, Finding

DRAINED, NODES_LEFT = "drained-gpus", "nodes-left"
CHECKS = (DRAINED, NODES_LEFT)


def examine(settings: Config) -> list[Finding]:
    if os.geteuid() != 0:
        return finding.need_root(CHECKS)
    drained = unhealthy.read_drained(settings.state_dir)
    found = [_drained(settings.state_dir, uuid, each) for uuid, each in drained.items()]
    path = unhealthy.drained_in(settings.state_dir)
    if not drained and os.path.exists(path):
        what = "names no drained GPU as it is: drained GPUs get containers"
        found.append(Finding(DRAINED, WARNING, what, path, "run 'vcuda drain' again, or remove it"))
    return [*(found or [Finding(DRAINED, OK, "none")]), *_nodes_left(settings.state_dir)]


def _drained(state_dir: str, uuid: str, drained: Drain) -> Finding:
    ago = table.age(time.time() - drained.since)
    if drained.ended:
        what = f"drained {ago} ago: it gets no new containers"
        return Finding(DRAINED, INFO, what, uuid, "'vcuda undrain' uses it again")
    try:
        os.close(own_lock.acquire(f"{state_dir}/{drain.LOCK}", 0))
    except OSError:
        return Finding(DRAINED, INFO, f"is being drained since {ago}", uuid)
    what = f"its drain was interrupted {ago} ago: containers may be left on it"
    return Finding(DRAINED, WARNING, what, uuid, "run 'vcuda drain' again, or 'vcuda undrain'")


def _nodes_left(state_dir: str) -> list[Finding]:
    records, _ = Ledger(state_dir).read()
    names = container_names.lines(records)
    hint = "run 'vcuda move' to its own GPU, or any other verb that suspends or moves"
    found = []
    for record in records:
        if record.nodes_left:
            what = f"may still open {', '.join(record.nodes_left)}: a move was interrupted"
            found.append(Finding(NODES_LEFT, WARNING, what, names[record.id], hint))
    return found or [Finding(NODES_LEFT, OK, "no container may open a GPU that it has left")]
