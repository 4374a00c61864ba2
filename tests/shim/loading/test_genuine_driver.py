"""NVIDIA's libraries and nvidia-smi against the shim: exports, look-ups, what nvidia-smi shows."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shim.conftest import LIBRARIES, Clients, DriverRoot
from shim.genuine import Genuine, versions
from shim.loading.test_shim_lookup import answers
from support.files import ROOT
from support.gpu.guest import GIB, SHIM, WORKLOAD, Guest, share

pytestmark = pytest.mark.usefixtures("built")


@pytest.fixture(params=versions())
def genuine(request: pytest.FixtureRequest) -> Genuine:
    return Genuine(request.param)


def exports_of(library: str) -> set[str]:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[-1] for line in listing.splitlines()}


def test_the_shim_exports_what_the_driver_exports_but_the_debuggers(genuine: Genuine) -> None:
    ours = exports_of(SHIM)
    debugger = {name for name in genuine.exports("libcuda.so.1") if name.startswith("cudbg")}
    assert len(debugger) > 20
    assert genuine.exports("libcuda.so.1") - ours == debugger
    assert genuine.exports("libnvidia-ml.so.1") - ours == set()


def test_every_undeclared_export_is_one_of_a_driver() -> None:
    every = set[str]()
    for version in versions():
        genuine = Genuine(version)
        every |= genuine.exports("libcuda.so.1") | genuine.exports("libnvidia-ml.so.1")
    with open(os.path.join(ROOT, "libvcuda", "exports.list"), encoding="utf-8") as lines:
        listed = {line.strip() for line in lines if not line.startswith("#")} - {""}
    assert listed - every == set()


@pytest.fixture
def genuine_guest(genuine: Genuine, tmp_path: Path) -> Guest:
    """A guest on NVIDIA's libraries. Without an NVIDIA GPU only look-ups work."""
    libraries = tmp_path / "root" / LIBRARIES
    libraries.mkdir(parents=True)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        file = genuine.library(name)
        (libraries / name).symlink_to(file)
        (libraries / file.name).symlink_to(file)
    gpu = share("GPU-01010101-0101-0101-0101-010101010101", GIB)
    return Guest(str(tmp_path / "guest"), str(tmp_path / "root"), [gpu])


def test_every_look_up_names_the_export_that_the_driver_alone_names(
    genuine: Genuine, genuine_guest: Guest, client: Clients, tmp_path: Path
) -> None:
    exports = exports_of(SHIM) | genuine.exports("libcuda.so.1")
    asked = {name for name in exports if name.startswith("cu") and not name.startswith("cudbg")}
    names = tmp_path / "names"
    names.write_text("\n".join(sorted(asked | {name.split("_")[0] for name in asked})) + "\n")
    program = client("finds")
    bare = subprocess.run(
        [program, str(names)],
        env={"LD_LIBRARY_PATH": str(tmp_path / "root" / LIBRARIES)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    inside = genuine_guest.run(program, str(names))
    alone = {question: name for question, name, _ in answers(bare)}
    through = {question: name for question, name, _ in answers(inside)}
    assert len({question for question, name in alone.items() if name != "-"}) > 10_000
    assert "?" not in alone.values()
    different = {
        question: (alone[question], through[question])
        for question in alone
        if not set(through[question].split("=")) <= set(alone[question].split("="))
        # The shim exports what an older driver lacks, and answers "not found".
        and (question[0] == "proc" or alone[question] != "-")
    }
    assert dict(list(different.items())[:20]) == {}


@pytest.fixture
def host_options() -> list[str]:
    return ["--gpus", "1"]


@pytest.fixture
def shared(
    host: DriverRoot, new_guest: Callable[..., Guest]
) -> Iterator[tuple[Guest, int, set[int]]]:
    """A container that holds 1 of its 3 GiB beside two busy neighbours; the pids."""
    uuid = host.uuids[0]
    guest, neighbour = new_guest(share(uuid, 3 * GIB, 30)), new_guest(share(uuid, 5 * GIB))
    hold = guest.start(WORKLOAD, "hold", "--bytes", str(GIB), "--seconds", "120")
    others = [neighbour.start(WORKLOAD, "hold", "--bytes", str(2 * GIB), "--seconds", "120")]
    for process in (hold, *others):
        assert process.stdout is not None and process.stdout.readline()
    busy = ["--kernel-us", "10000", "--async", "2", "--seconds", "120"]
    others.append(neighbour.start(WORKLOAD, "busy", "--allocate", str(GIB), *busy))
    yield guest, hold.pid, {process.pid for process in others}
    for process in (hold, *others):
        process.kill()
        process.communicate()


def show(guest: Guest, genuine: Genuine, *arguments: str) -> str:
    return guest.run(genuine.smi, *arguments)


def numbers_in(processes: str) -> set[int]:
    """Without amounts of memory. A version or an amount elsewhere may be some process's number."""
    return {int(number) for number in re.findall(r"\b\d+\b(?! MiB)", processes)}


def test_the_table_of_nvidia_smi_shows_the_slice_and_the_containers_processes(
    shared: tuple[Guest, int, set[int]], genuine: Genuine
) -> None:
    guest, own, neighbours = shared
    table = show(guest, genuine)
    gpus, processes = table.split("Processes:")
    assert re.findall(r"(\d+)MiB / +(\d+)MiB", gpus) == [("1024", "3072")]
    assert re.findall(r" (\d+)%  ", gpus) == ["0"]
    rows = re.findall(r"^\| +0 +N/A +N/A +(\d+) +(\S+) +(\S+) +(\d+)MiB", processes, re.MULTILINE)
    assert [(pid, kind, mib) for pid, kind, _, mib in rows] == [(str(own), "C", "1024")]
    assert rows[0][2].endswith("vcuda-workload")
    assert not neighbours & numbers_in(processes)


def test_the_list_and_the_fields_of_nvidia_smi_show_the_slice(
    host: DriverRoot, shared: tuple[Guest, int, set[int]], genuine: Genuine
) -> None:
    guest, own, _ = shared
    uuid = host.uuids[0]
    assert show(guest, genuine, "-L") == f"GPU 0: vcuda Software GPU (UUID: {uuid})\n"
    fields = "uuid,name,memory.total,memory.used,memory.free,utilization.gpu"
    gpu = show(guest, genuine, f"--query-gpu={fields}", "--format=csv,noheader")
    assert gpu == f"{uuid}, vcuda Software GPU, 3072 MiB, 1024 MiB, 2048 MiB, 0 %\n"
    fields = "gpu_uuid,pid,name,used_memory"
    apps = show(guest, genuine, f"--query-compute-apps={fields}", "--format=csv,noheader")
    assert apps == f"{uuid}, {own}, {WORKLOAD}, 1024 MiB\n"
    accounted = show(guest, genuine, "--query-accounted-apps=pid", "--format=csv,noheader")
    assert not re.search(r"\d", accounted)


def test_the_report_of_nvidia_smi_shows_the_slice_and_the_containers_processes(
    shared: tuple[Guest, int, set[int]], genuine: Genuine
) -> None:
    guest, own, neighbours = shared
    report = show(guest, genuine, "-q")
    memory = report.split("FB Memory Usage", 1)[1].split("BAR1", 1)[0]
    values = dict(re.findall(r"(\w+) +: (\d+) MiB", memory))
    assert (values["Total"], values["Used"], values["Free"]) == ("3072", "1024", "2048")
    assert re.findall(r"Process ID +: (\d+)", report) == [str(own)]
    assert re.findall(r"Name +: (/.*)", report) == [WORKLOAD]
    assert not neighbours & numbers_in(report.split("Processes", 1)[1])
    monitor = show(guest, genuine, "pmon", "-c", "1")
    rows = [line.split()[:3] for line in monitor.splitlines() if not line.startswith("#")]
    assert rows == [["0", str(own), "C"]]
