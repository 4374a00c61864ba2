"""`vcuda doctor` on MPS."""

from __future__ import annotations

import pytest

from vcuda_hook.doctor.finding import ERROR, INFO, OK, WARNING
from vcuda_hook.doctor.mps import Daemon, judge

GOOD = Daemon(7, "/run/vcuda/mps/GPU-1", is_wanted=True, for_all=True)


@pytest.mark.parametrize(
    ("isolation", "has_program", "exclusive", "daemon", "severity", "words"),
    [
        ("auto", True, [], GOOD, OK, "1 daemons"),
        ("auto", False, [], None, OK, "no control program"),
        ("mps", False, [], None, ERROR, "every share is refused"),
        ("auto", True, ["GPU 0"], None, WARNING, "one process at a time"),
        ("mps", True, ["GPU 0"], GOOD, OK, "1 daemons"),
        ("auto", True, [], Daemon(7, "/x", False, True), WARNING, "left over"),
        ("auto", True, [], Daemon(7, "/x", True, False), WARNING, "one user at a time"),
        ("auto", True, [], Daemon(7, "", False, False), INFO, "of another program"),
        (
            *("auto", True, [], Daemon(7, "/x", True, True, "vcuda.service"), INFO),
            "ends with vcuda.service: its stop or restart",
        ),
    ],
)
def test_each_fault_of_mps_is_found_and_named(
    isolation: str,
    has_program: bool,
    exclusive: list[str],
    daemon: Daemon | None,
    severity: str,
    words: str,
) -> None:
    (found,) = judge(isolation, has_program, exclusive, [daemon] if daemon else [])
    assert (found.severity, words in found.what) == (severity, True)


def test_prohibited_gpu_is_no_exclusive_one() -> None:
    (found,) = judge("mps", True, [], [], ["GPU 0"])
    assert (found.severity, "every program on it fails" in found.what) == (ERROR, True)
