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


@pytest.mark.parametrize(
    ("version", "has_v3", "found"), [(2, True, 1), (3, True, 0), (2, False, 0)]
)
def test_daemon_of_version_two_is_noted_where_the_driver_has_three(
    version: int, has_v3: bool, found: int
) -> None:
    daemon = Daemon(7, "/x", is_wanted=True, for_all=True, version=version)
    told = judge("auto", True, [], [daemon], has_v3=has_v3)
    assert [one.severity for one in told if "version 2" in one.what] == [INFO] * found


@pytest.mark.parametrize(("lacks", "found"), [(False, OK), (True, ERROR)])
def test_layout_of_partitions_is_an_error_with_an_older_driver(lacks: bool, found: str) -> None:
    (told,) = judge("auto", True, [], [], lacks_partitions=lacks)
    assert (told.severity, "needs driver 590 or later" in told.what) == (found, lacks)


def test_daemon_of_another_program_is_named_with_its_pipe_directory() -> None:
    daemon = Daemon(7, "", is_wanted=False, for_all=False, pipes="/tmp/mps")
    (told,) = judge("auto", True, [], [daemon])
    assert told.where == "pid 7, /tmp/mps"


def test_prohibited_gpu_is_no_exclusive_one() -> None:
    (found,) = judge("mps", True, [], [], ["GPU 0"])
    assert (found.severity, "every program on it fails" in found.what) == (ERROR, True)
