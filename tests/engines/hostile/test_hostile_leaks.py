"""Descriptors, variables and programs that a container could get from vcuda."""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any

import pytest

from support import compiled
from support.bundle.trap import SECRET, sha256
from support.engines.base import Result, Wanted
from support.waiting import until
from support.wrapper.entry_points import MAIN_ENTRY_POINTS, Change, EntryPoint, unchanged

# Descriptors that the runtime was started with: of a folder, of a file, and of a pipe.
LEAKED = "exec 3<{folder} 4<{folder}/secret 7<{folder} 9>{folder}/written"


# What each runtime alone does, by its name and the case: for all of its entry points.
_ALONE: dict[tuple[str, str], Result] = {}


@pytest.fixture(scope="module")
def folder(session_folder: str) -> str:
    folder = tempfile.mkdtemp(dir=session_folder)
    with open(folder + "/secret", "w") as file:
        file.write(SECRET)
    return folder


def alone(
    entry_point: EntryPoint, case: str, script: str, change: Change = unchanged, **more: Any
) -> Result:
    """What a container prints that the runtime starts without vcuda."""
    key = (entry_point.engine.name, case)
    if key not in _ALONE:
        wanted = Wanted("alone", ["sh", "-c", script])
        _ALONE[key] = entry_point.plain(wanted, change, **more)
    return _ALONE[key]


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_container_has_the_descriptors_and_variables_that_its_runtime_gives_it(
    entry_point: EntryPoint, container: str, folder: str, kept: int
) -> None:
    """`--preserve-fds` is the engine's wish: those come through, and none of ours beside them."""
    fds = "for fd in /proc/$$/fd/*; do echo ${fd##*/} $(readlink $fd | sed 's/:.*//'); done"
    script = fds + "; env | sort; pwd; umask"
    more: dict[str, Any] = {
        "options": [f"--preserve-fds={kept}"],
        "leak": LEAKED.format(folder=folder),
    }
    plain = alone(entry_point, f"{kept} kept", script, **more)
    result = entry_point.run(entry_point.with_share(container, "sh", "-c", script), **more)
    assert result == plain
    numbers = re.findall(r"^(\d+)\b", result.stdout, re.M)
    assert numbers[3 : 3 + kept] == ["3", "4"][:kept]


@pytest.mark.parametrize("entry_point", MAIN_ENTRY_POINTS, indirect=True)
def test_a_working_folder_by_a_descriptor_leads_no_further_than_without_us(
    entry_point: EntryPoint, container: str, folder: str
) -> None:
    """CVE-2024-21626: a process that starts in a folder of the host's that a program left open.

    crun 1.8 itself lets it start in what its caller left open (3, 7); a number of ours would show.
    """

    def at(number: int) -> Any:
        def change(config: dict[str, Any], bundle: str) -> None:
            config["process"]["cwd"] = f"/proc/self/fd/{number}"

        return change

    script = "cat secret ../secret ./; pwd"
    for number in (3, 5, 6, 7, 8, 10):
        more = {"leak": LEAKED.format(folder=folder)}
        plain = alone(entry_point, f"in {number}", script, at(number), **more)
        result = entry_point.run(
            entry_point.with_share(container, "sh", "-c", script), at(number), **more
        )
        assert (result.stdout, result.rc == 0) == (plain.stdout, plain.rc == 0), number
    entry_point.sweep()


def test_a_neighbour_reaches_no_program_of_ours_by_its_proc(
    entry_point: EntryPoint, container: str, scratch: str
) -> None:
    """CVE-2019-5736, CVE-2024-0135: it shares the new container's pid namespace."""
    names = ("bin/vcuda-container-runtime", "bin/vcuda-container-hook", "bin/vcuda",
             "lib/vcuda/vcuda-procfs-hook", "lib/vcuda/libvcuda.so.1")  # fmt: skip
    ours = [os.path.realpath(f"{entry_point.product.prefix}/{name}") for name in names]
    ours += [os.path.realpath("/usr/bin/python3"), entry_point.engine.plain_runtime()]
    before = {path: sha256(path) for path in ours}
    compiled.program(scratch, "look_around", "-static")
    neighbour = container + "-neighbour"

    def joined(config: dict[str, Any], bundle: str) -> None:
        pid = entry_point.engine.host.read("bundles", neighbour, "pid")
        for namespace in config["linux"]["namespaces"]:
            if namespace["type"] == "pid":
                namespace["path"] = f"/proc/{pid}/ns/pid"

    looking = entry_point.with_share(neighbour, "/look/look_around", "100")
    looking = Wanted(neighbour, looking.args, mounts=[(scratch, "/look")])
    assert entry_point.engine._start(looking).rc == 0
    try:
        until(lambda: "begin" in entry_point.engine.logs(neighbour), "the neighbour")
        for number in range(3):
            result = entry_point.run(
                entry_point.with_share(f"{container}-{number}", "echo", "up"), joined
            )
            assert result.stdout == "up\n", result.stderr
        entry_point.engine.host.write(f"bundles/{neighbour}/rootfs/tmp/enough", "")
        until(lambda: "end" in entry_point.engine.logs(neighbour), "the neighbour's end")
        seen = entry_point.engine.logs(neighbour)
    finally:
        entry_point.engine.delete(neighbour)
    reached = {int(number) for number in re.findall(r"reached (\d+)", seen)}
    assert {path for path in ours if os.stat(path).st_ino in reached} == set()
    assert {path: sha256(path) for path in ours} == before
