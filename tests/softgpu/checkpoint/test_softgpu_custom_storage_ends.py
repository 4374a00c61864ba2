"""The end of a caller that has not completed its copy to or from custom storage."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.softgpu.custom_storage import HOLDER, STORAGE, VERSION
from support.softgpu.softgpu_host import SoftGpu, answer, first_line, go_on

LOCKED, CHECKPOINTED, FAILED, CHECKPOINTING, RESTORING = 1, 2, 3, 4, 5
# A caller that holds what it has saved, and takes a step at each line.
CALLER = (
    STORAGE
    + """
retain(0)
lock(pid)
info = begin("Checkpoint", pid)[1]
say()
sys.stdin.readline()
stored = save(info)
code = complete(info.handle)
say(code=code, state=state(pid))
sys.stdin.readline()
info = begin("Restore", pid)[1]
say()
sys.stdin.readline()
load(info, stored)
code = complete(info.handle)
say(code=code, state=state(pid))
"""
)


class Case:
    """A target, and a caller that is STEP calls on its way."""

    def __init__(self, folder: Path, steps: int, *options: str) -> None:
        self.gpu = SoftGpu(folder, "--memory", "64MiB", *VERSION, *options)
        self.holder = self.gpu.start_client(HOLDER)
        self.pid = first_line(self.holder)["pid"]
        self.caller = self.gpu.start_client(f"pid = {self.pid}\n" + CALLER)
        first_line(self.caller)
        for _ in range(steps):
            self.step()

    def step(self) -> object:
        go_on(self.caller)
        return first_line(self.caller)

    def kill_caller(self) -> None:
        self.caller.kill()
        self.caller.communicate()

    def ask(self, script: str) -> object:
        return self.gpu.client(STORAGE + f"retain(0); pid = {self.pid}; " + script)


@pytest.mark.parametrize("steps", [0, 2], ids=["checkpoint", "restore"])
@pytest.mark.parametrize("end", ["lost", "stays", "back"])
def test_killed_caller_leaves_the_process_in_the_ordered_state(
    tmp_path: Path, end: str, steps: int
) -> None:
    case = Case(tmp_path, steps, *(() if end == "lost" else ("--caller-end", end)))
    states = {
        "lost": (FAILED, FAILED),
        "stays": (CHECKPOINTING, RESTORING),
        "back": (LOCKED, CHECKPOINTED),
    }[end]
    expected = states[0 if steps == 0 else 1]
    case.kill_caller()
    held = 0 if expected == CHECKPOINTED else 8
    look = "say(seen=[state(pid), used() // MIB])"
    assert case.ask(look) == {"seen": [expected, held]}
    assert case.ask(look) == {"seen": [expected, held]}  # with another process in its slot
    going_on = """
codes = [step(pid, None)[0].value for step in (cuda.cuCheckpointProcessUnlock,
         cuda.cuCheckpointProcessCheckpoint, cuda.cuCheckpointProcessRestore)]
say(codes=codes, state=state(pid))
"""
    found = case.ask("\n" + going_on)
    if expected == LOCKED:
        assert found == {"codes": [0, 401, 401], "state": 0}
        go_on(case.holder)
        assert answer(case.holder) == {"back": [7], "used": 8 << 20}
        return
    # The driver does not have what a caller has stored: see test_softgpu_custom_storage.
    end_code = 304 if expected == CHECKPOINTED else 401
    end_state = FAILED if expected == CHECKPOINTED else expected
    assert found == {"codes": [401, 401, end_code], "state": end_state}
    case.holder.kill()
    case.holder.communicate()


def test_process_that_is_back_can_be_restored_by_another_caller(tmp_path: Path) -> None:
    case = Case(tmp_path, 2, "--caller-end", "back")
    case.kill_caller()
    found = case.ask(
        """
info = begin("Restore", pid)[1]
load(info, [ctypes.create_string_buffer(bytes([5]) * 8 * MIB, 8 * MIB)])
code = complete(info.handle)
unlock(pid)
say(code=code)
"""
    )
    assert found == {"code": 0}
    go_on(case.holder)
    assert answer(case.holder) == {"back": [5], "used": 8 << 20}


@pytest.mark.parametrize("steps", [0, 2], ids=["checkpoint", "restore"])
def test_complete_gives_the_process_up_on_order(tmp_path: Path, steps: int) -> None:
    case = Case(tmp_path, steps)
    case.gpu.order("fail", "--give-up", "complete")
    assert case.step() == {"code": 304, "state": FAILED}
    for process in (case.caller, case.holder):
        process.kill()
        process.communicate()


def test_complete_hangs_on_order_and_goes_on_after_heal(tmp_path: Path) -> None:
    case = Case(tmp_path, 0)
    case.gpu.order("fail", "--call", "cuCheckpointOperationComplete", "--hang")
    go_on(case.caller)
    assert case.ask("time.sleep(0.3); say(state=state(pid))") == {"state": CHECKPOINTING}
    case.gpu.order("heal")
    assert first_line(case.caller) == {"code": 0, "state": CHECKPOINTED}
    case.gpu.order("fail", "--call", "cuCheckpointOperationComplete", "--hang")
    case.step()
    go_on(case.caller)
    case.kill_caller()
    assert case.ask("say(state=state(pid))") == {"state": FAILED}
    case.holder.kill()
    case.holder.communicate()


def test_create_refuses_an_unknown_end_of_callers(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        SoftGpu(tmp_path, "--caller-end", "dies")
