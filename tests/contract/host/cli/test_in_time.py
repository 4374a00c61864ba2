"""A call that hangs, crashes or raises in its child process affects no other call."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import signal
import subprocess
import sys
import time
from typing import Any

from support.files import ROOT
from support.processes import children_of
from support.waiting import until
from vcuda_hook.live import in_time


def outcome(answer: Any) -> Any:
    return ("unanswered", answer.reason) if isinstance(answer, in_time.Unanswered) else answer


def hang() -> None:
    time.sleep(600)


def crash() -> None:
    faulthandler.disable()
    ctypes.string_at(0)


def refuse() -> None:
    raise ValueError("no such thing")


def test_each_question_is_answered_by_itself(capfd: Any) -> None:
    questions = [lambda: {"two": [2]}, hang, crash, refuse, lambda: "last"]
    assert [outcome(answer) for answer in in_time.ask(questions, 5)] == [
        {"two": [2]},
        ("unanswered", "no answer in 5 s"),
        ("unanswered", "the process that asked ended with SIGSEGV"),
        ("unanswered", "the process that asked failed"),
        "last",
    ]
    assert "ValueError: no such thing" in capfd.readouterr().err


def test_what_a_question_has_started_ends_with_it(tmp_path: Any) -> None:
    pid_file = f"{tmp_path}/pid"

    def hang_in_another_process() -> None:
        subprocess.run(["sh", "-c", f"echo $$ >{pid_file}; exec sleep 600"], check=True)

    (answer,) = in_time.ask([hang_in_another_process], 5)
    assert outcome(answer) == ("unanswered", "no answer in 5 s")
    with open(pid_file) as file:
        pid = int(file.read())
    # A signal was sent; the process dies when it is next scheduled.
    until(lambda: not is_running(pid))


def test_remaining_process_holds_no_output_open(tmp_path: Any) -> None:
    pid_file = f"{tmp_path}/pid"
    # One that leaves the process group outlives its question, as one that cannot be killed does.
    leave = ["setsid", "sh", "-c", f"echo $$ >{pid_file}; exec sleep 600"]
    line = (
        f"import subprocess, sys; sys.path[:0] = {[ROOT + '/oci', ROOT + '/runtime_hook']}; "
        f"from vcuda_hook.live import in_time; in_time.ask([lambda: subprocess.run({leave})], 1)"
    )
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, timeout=60)
    with open(pid_file) as file:
        pid = int(file.read())
    os.kill(pid, signal.SIGKILL)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_output_of_a_question_is_discarded(capfd: Any) -> None:
    assert in_time.ask([lambda: os.write(1, b"noise")], 30) == [5]
    assert capfd.readouterr().out == ""


def test_no_child_and_no_descriptor_remains() -> None:
    gc.collect()  # close files of other tests now, so that the count is stable
    before = len(os.listdir("/proc/self/fd")), children_of(os.getpid())
    in_time.ask([hang, lambda: 1, lambda: 2], 1)
    assert (len(os.listdir("/proc/self/fd")), children_of(os.getpid())) == before


def is_running(pid: int) -> bool:
    """A killed process that its new parent has not reaped yet is no running one."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
