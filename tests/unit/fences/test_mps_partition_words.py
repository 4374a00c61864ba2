"""What is said to NVIDIA's control program for static partitions, and what its answers mean."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vcuda_oci.fences import mps_control, mps_folder, mps_partitions
from vcuda_oci.fences.mps_folder import Ready
from vcuda_oci.model import mps
from vcuda_oci.model.errors import VcudaError

UUID = "GPU-74d43ed3-cdf7-e667-3644-bf5b4f46ed65"
ID = "D/79e/DgwYMDAAAAAAAAAAAAAAAAAAAAAAAA"  # one slash after another
# As programs have seen it, and as the guide prints it.
BARE = ("GPU-74d43ed3 14 0 56 0", "GPU-74d43ed3 {id} {chunks} {width} No")
DASHED = ("GPU-74d43ed3 - 14 0 56 0 -", "GPU-74d43ed3 {id} - {chunks} - {width} -")
HEAD = "GPU  Partition  free used free used clients\\n chunk chunk SM SM"
V2 = Ready([1, 1], [1, 1], [])

Program = Callable[..., tuple[dict[str, str], Callable[[], list[str]]]]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Makes a control program of shell cases; returns the tree, and what lists its commands."""

    def make(*cases: str) -> tuple[dict[str, str], Callable[[], list[str]]]:
        file, log = tmp_path / "control", tmp_path / "told"
        body = 'said="$*"; [ "$said" ] || read -r said\n' + f'echo "$said" >>{log}\n'
        file.write_text(f'#!/bin/sh\n{body}case "$said" in\n{chr(10).join(cases)}\nesac\n')
        file.chmod(0o755)
        tree = {"gpu": UUID, "program": str(file), "library": "", "driver": "590.10"}
        return tree, lambda: log.read_text().splitlines()

    return make


def v2_cases(rows: tuple[str, str]) -> list[str]:
    gpu, partition = rows
    listed = "\\n".join(
        partition.format(id=f"{ID}{chunks}", chunks=chunks, width=4 * chunks) for chunks in (7, 3)
    )
    return [
        f'"sm_partition add "*) echo "Partition {UUID}/{ID}${{said##* }} created";;',
        f"lspart) printf '{HEAD}\\n{gpu}\\nGPU-00000000 9 9 9 9\\n{listed}\\n';;",
    ]


@pytest.mark.parametrize("rows", [BARE, DASHED])
def test_partitions_of_version_2_are_added_by_chunks_and_found_in_the_list(
    program: Program, tmp_path: Path, rows: tuple[str, str]
) -> None:
    tree, told = program(*v2_cases(rows))
    found = mps_partitions.make(str(tmp_path), tree, V2, [50, 22])
    adds = [f"sm_partition add {UUID} {chunks}" for chunks in (7, 3)]
    assert told() == ["lspart", adds[0], "lspart", adds[1], "lspart"]
    assert (found.layout, found.partitions, found.binds) == ([50, 22], [28, 12], False)
    named = [Path(mps_folder.partition_file(str(tmp_path), at)).read_text() for at in (1, 2)]
    assert named == [f"{UUID}/{ID}7", f"{UUID}/{ID}3"]


def test_list_of_a_server_that_has_no_gpu_yet_is_asked_for_again(
    program: Program, tmp_path: Path
) -> None:
    tree, told = program(f"lspart) [ -e {tmp_path}/asked ] || exec touch {tmp_path}/asked",
                         f"echo '{BARE[0]}';;")  # fmt: skip
    assert mps_partitions._chunks_v2(str(tmp_path), tree) == 14
    assert told() == ["lspart", "lspart"]


@pytest.mark.parametrize(
    ("cases", "line"),
    [
        ([], "MPS does not list the GPU's chunks"),
        (["lspart) echo 'Unknown command: lspart';;"], "MPS does not list the GPU's chunks"),
        (
            [f"lspart) echo '{BARE[0]}';;", "*) echo 'Failed to fulfill it';;"],
            f"MPS refuses 'sm_partition add {UUID} 14': Failed to fulfill it",
        ),
        (
            [f"lspart) echo '{BARE[0]}';;", "*) printf 'Failed\\nto  do\\n%0500d' 1;;"],
            f"MPS refuses 'sm_partition add {UUID} 14': Failed to do 0{{287}}…; see",
        ),
        (
            [f"lspart) echo '{BARE[0]}';;", f"*) echo 'Partition {UUID}/{ID} created';;"],
            "MPS does not say what partition it has made",
        ),
    ],
)
def test_daemon_that_makes_no_partition_is_named_and_nothing_is_written(
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cases: list[str],
    line: str,
) -> None:
    monkeypatch.setattr(mps_partitions, "_LIST_SECONDS", 0.1)
    tree, _ = program(*cases)
    with pytest.raises(VcudaError, match=line):
        mps_partitions.make(str(tmp_path), tree, V2, [100])
    assert not (tmp_path / "partitions").exists()


@pytest.mark.parametrize("is_v2", [True, False])
def test_command_that_a_daemon_does_not_answer_is_named(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_v2: bool
) -> None:
    monkeypatch.setattr(mps_control, "_START_SECONDS", 0.1)
    tree, _ = program("*) exec sleep 60;;")
    ask = mps_control.ask_v2 if is_v2 else mps_control.require_v3
    with pytest.raises(subprocess.TimeoutExpired, match="Command 'lspart' timed out after"):
        ask(str(tmp_path), tree, "lspart")


@pytest.mark.parametrize(
    ("driver", "is_partitioned", "options"),
    [
        ("580.95", False, ["-multiuser-server", ""]),
        ("590.10", False, ["-multiuser-server", ""]),
        ("590.10", True, ["-S -multiuser-server", "-S"]),
        ("615.10", False, ["-p 3 -m", "-multiuser-server", ""]),
        ("615.10", True, ["-p 3 -m", "-S -multiuser-server", "-S"]),
    ],
)
def test_daemon_for_partitions_is_never_started_as_one_that_has_none(
    program: Program, tmp_path: Path, driver: str, is_partitioned: bool, options: list[str]
) -> None:
    tree, told = program("*) exit 1;;")
    with pytest.raises(VcudaError, match="does not start"):
        mps_control.start(str(tmp_path), {**tree, "driver": driver}, is_partitioned)
    assert told() == [f"-f {one}".strip() for one in options]


@pytest.mark.parametrize(
    ("driver", "found"),
    [
        ("", (False, False, False)),
        ("580.95", (False, False, False)),
        ("590.10", (True, False, False)),
        ("610.10", (True, False, False)),
        ("615.10", (True, True, False)),
        ("620.10", (True, True, True)),
    ],
)
def test_driver_says_which_partitions_and_namespaces_there_are(
    driver: str, found: tuple[bool, bool, bool]
) -> None:
    questions = (mps.has_partitions, mps.has_namespaces, mps.has_partitions_in_namespaces)
    assert tuple(question(driver) for question in questions) == found
