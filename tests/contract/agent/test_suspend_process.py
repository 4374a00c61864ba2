"""The agent's process for suspended containers: it completes what a killed program left."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from support.softgpu.softgpu_host import REPOSITORY
from support.suspend.suspended import Node, node
from support.waiting import until
from vcuda_hook.checkpoint import steps
from vcuda_hook.checkpoint.targets import Targets
from vcuda_hook.checkpoint.worker import Worker
from vcuda_hook.suspend.operation import Operation
from vcuda_hook.suspend.places import library_of
from vcuda_oci.model.suspension import BY_ORDER, SUSPENDING

__all__ = ["node"]

PROGRAM = """
import sys
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.suspend.suspend_process import main
main(settings_file.parse(sys.argv[1], "config.toml"))
"""


def leave_locked(node: Node, id: str) -> None:
    """As a program that was killed behind its first call of the driver."""
    with (
        Operation(node.ledger, id, 1) as mine,
        Worker(library_of(node.facts), mine.lock) as worker,
    ):
        mine.update(mine.begun(SUSPENDING, BY_ORDER, {}))
        mine.let_calls_wait(BY_ORDER)
        mine.note_found({})
        started = Targets(mine.record, mine.ledger.containers)()
        states = worker.states(started, time.monotonic() + 10)
        worker.call(steps.LOCK, started, list(states), time.monotonic() + 10)
        assert set(worker.states(started, time.monotonic() + 10).values()) == {steps.LOCKED}


def test_container_that_was_left_locked_is_at_work_again_and_the_process_ends(node: Node) -> None:
    box = node.box("box", 2)
    leave_locked(node, "box")
    places = (str(REPOSITORY / name) for name in ("oci", "runtime_hook", "plugin"))
    text = f'driver-root = "{node.gpu.root}"\nstate-dir = "{node.ledger.state_dir}"'
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, text],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: node.record("box").suspension is None)
        assert node.step("box") is None
        assert box.all_work()
        out, _ = program.communicate(timeout=10)
    finally:
        program.kill()
        program.wait()
    assert (program.returncode, out) == (0, "")
