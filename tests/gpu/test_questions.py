"""`make gpu` asks what it says that it asks. Here it asks the software GPU: what comes of it is no
figure of any hardware."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu import overhead, report
from gpu.machine import Card
from support.softgpu.softgpu_host import REPOSITORY, SoftGpu

QUICK = ["--seconds", "0.2", "--rounds", "1", "--python", sys.executable]
FIGURES = {
    "memory.limit": 2,
    "memory.nvml": 1,
    "memory.context": 1,
    "memory.stack": 1,
    "memory.module": 0,  # the software GPU has no linker
    "overhead.call": 4,
    "overhead.training": 0,  # there is no PyTorch
    "frameworks": 1,  # Numba needs a linker; the others are not there
    "clock.slice": 1,  # the kind clock has no slices
    "clock.preemption": 1,
    "clock.streams": 2,
    "clock.copies": 3,
    "clock.submission": 1,
    "events.beside": 1,
    "nvml.utilisation": 2,
    "share.alone": 5,
    "share.two": 12,
    "charged": 1,
    "suspend.rate": 5,
    "suspend.first call": 2,
    "suspend.refusal": 2,
    "suspend.no room": 1,
    "suspend.restore": 2,
    "suspend.killed": 3,
    "mps": 5,
    "namespaces": 5,
    "partitions": 7,
    "static": 6,
    "limits": 6,
    "mig": 2,
    "judge": 1,
}


# The driver has limits of its own, and the GPU could be divided.
FENCES = ("--driver-version", "620.10", "--model", "NVIDIA H100")


def ask(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.gpu", *QUICK, *options],
        cwd=REPOSITORY,
        env=environment,
        text=True,
        capture_output=True,
        timeout=280,
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("questions")
    # Its event pairs leave out a neighbour's time, so that every exact figure has one answer.
    gpu = SoftGpu(folder, "--memory", "1GiB", "--clock", "kind", *FENCES)
    out = folder / "gpu.json"
    done = ask(gpu.environment(), "--json-out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


def test_every_question_has_an_answer_or_a_reason(kept: Any) -> None:
    names = [figure["name"] for figure in kept["figures"]]
    assert {q: sum(n.startswith(q) for n in names) for q in FIGURES} == FIGURES
    assert kept["unmeasured"] == {
        "memory.module": "CUDA_ERROR_NOT_SUPPORTED",
        "overhead.training": f"no torch for {sys.executable}",
    }
    assert set(FIGURES) == {question.name for question in report.QUESTIONS}


def test_exact_figures_of_the_software_gpu_are_measured_exactly(kept: Any) -> None:
    values = {figure["name"]: figure["value"] for figure in kept["figures"]}
    exact = {
        "memory.limit above": 0,
        "memory.limit below": 0,
        "memory.nvml off by": 0,
        "memory.context": 0,
        "memory.stack above the charge": 0,
        # A thread that loses the processor between two records makes an interval longer.
        "events.beside a neighbour": pytest.approx(1, abs=0.2),
        "judge.answers that differ": 0,
        "mps.control alone": 0,
        "mps.listed": 1,
        "namespaces.client of 100 %": pytest.approx(100 * 38 / 132),
        "namespaces.client of 10 %": pytest.approx(100 * 38 / 132),
        "namespaces.control alone": 0,
        "partitions.chunk": 8,
        "partitions.off by": 0,
        "partitions.with 10 %": 8,
        "partitions.none named": 915,  # CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
        "partitions.beside a client": 1,
        "partitions.bound": 0,
        "partitions.bound off by": 0,
        "static.chunk": 8,
        "static.off by": 0,
        "static.with 10 %": 8,
        "static.none named": 915,
        "static.removed": 1,
        "static.added": 1,
        "limits.beyond": 0,
        "limits.got": 512,
        "limits.cuMemGetInfo off by": 0,
        "limits.NVML off by": 0,
        "limits.counted above": 0,
        "limits.own limit": 4,  # NVML_ERROR_NO_PERMISSION
        "mig.profiles": 6,
        "mig.unlike the table": 0,
        "suspend.no room lost": 0,
        "suspend.restore first": 2,  # CUDA_ERROR_OUT_OF_MEMORY
        "suspend.restore second": 304,  # CUDA_ERROR_OPERATING_SYSTEM, as an H200's
        "suspend.killed checkpoint": 0,
        "suspend.killed restore": 0,
        "suspend.first call wrong": 0,
        "suspend.refusal managed": 801,  # CUDA_ERROR_NOT_SUPPORTED
    }
    assert {name: values[name] for name in exact} == exact
    assert kept["device"]["software"] is True
    assert kept["model"][:2] == ["--clock", "kind"]


def of_question(kept: Any, name: str) -> dict[str, tuple[float, str]]:
    """By figure, its value and note."""
    found = [figure for figure in kept["figures"] if figure["name"].startswith(name)]
    return {figure["name"]: (figure["value"], figure["note"]) for figure in found}


def interpreter(folder: Path, script: str) -> str:
    """One that runs SCRIPT before the program that it is given."""
    (folder / "sitecustomize.py").write_text(script)
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_misuse_that_is_answered_otherwise_is_noted_with_the_call(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path)
    gpu.order("fail", "--call", "cuMemPoolCreate", "--error", "CUDA_ERROR_NOT_SUPPORTED")
    out = tmp_path / "gpu.json"
    done = ask(gpu.environment(), "--only", "judge", "--json-out", str(out))
    assert done.returncode == 0, done.stderr
    ((differ, note),) = of_question(json.loads(out.read_text()), "judge").values()
    notes = note.split("; ")
    assert differ == len(notes)
    assert "a pool is made on no device: NOT_SUPPORTED, not INVALID_VALUE" in notes
    call = "pool = ok(cuda.cuMemPoolCreate(v.pool_shape()))"
    failure = f"AssertionError: CUDA_ERROR_NOT_SUPPORTED at {call}"
    assert f"memory comes from a destroyed pool: {failure}, not INVALID_VALUE" in notes


def test_training_windows_cancel_what_makes_every_process_slower() -> None:
    now = 10.0

    def window(factor: float) -> float:
        nonlocal now
        now *= 1.03  # of each window: more than what is asked for
        return now * factor

    measures = [lambda factor=factor: window(factor) for factor in (1.0, 1.0, 1.02)]
    rows = overhead.in_windows(measures, 80)
    for column, percent in ((1, 0), (2, 2)):
        found = overhead.percent_apart((row[0], row[column]) for row in rows)
        assert statistics.median(found) == pytest.approx(percent, abs=0.3)


def test_training_is_timed_in_processes_that_stay_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    fake = "import sys\nfrom unittest.mock import MagicMock\nsys.modules['torch'] = MagicMock()\n"
    out = tmp_path / "gpu.json"
    done = ask(
        SoftGpu(tmp_path).environment(), "--only", "overhead.training", "--rounds", "2",
        "--python", interpreter(folder, fake), "--json-out", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = of_question(json.loads(out.read_text()), "overhead.training")
    assert list(found) == ["overhead.training step", "overhead.training of two alone"]
    assert "half of 160 windows" in found["overhead.training step"][1]


def test_framework_that_fails_without_the_slice_too_is_noted_apart(tmp_path: Path) -> None:
    folder = tmp_path / "frameworks"
    folder.mkdir()
    # numba fails anywhere, cupy where its memory is limited; the others are not there.
    fake = """
import sys
name, *pieces = sys.argv[1:]
if name == "numba" or name == "cupy" and not pieces:
    sys.exit(f"Error: of {name}")
print('{"missing": "it"}')
sys.exit()
"""
    (folder / "fake.py").write_text(fake)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} {folder}/fake.py "$@"\n')
    python.chmod(0o755)
    out = tmp_path / "gpu.json"
    done = ask(
        SoftGpu(tmp_path).environment(), "--only", "frameworks",
        "--python", str(python), "--json-out", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert of_question(json.loads(out.read_text()), "frameworks") == {
        "frameworks fail in the slice alone": (1, "cupy: Error: of cupy"),
        "frameworks fail anywhere": (1, "numba: Error: of numba"),
    }


def test_json_is_all_that_is_printed_and_has_the_model(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--memory", "2GiB", "--context-memory", "300MiB")
    out = tmp_path / "gpu.json"
    done = ask(gpu.environment(), "--json", "--only", "memory.context", "--json-out", str(out))
    assert (done.returncode, done.stdout) == (0, out.read_text())
    (figure,) = json.loads(done.stdout)["figures"]
    assert (figure["name"], figure["model"]) == ("memory.context", "--context-memory 300MiB")
    assert json.loads(done.stdout)["model"] == ["--context-memory", "300MiB"]


def test_figures_of_the_software_gpu_are_never_written_as_hardwares(tmp_path: Path) -> None:
    page = tmp_path / "hardware.md"
    done = ask(SoftGpu(tmp_path).environment(), "--report", str(page))
    assert (done.returncode, page.exists()) == (2, False)
    assert done.stderr.count("\n") == 1


def test_a_busy_gpu_or_machine_is_noted_first() -> None:
    assert report.warnings(0, 1.0, 2) == []
    gpu, machine = report.warnings(3, 9.5, 2)
    assert gpu.startswith("3 other processes use this GPU")
    assert machine.startswith("load 9.5 on 2 processors")


def test_missing_driver_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").touch()  # what the loader finds first, whatever this machine has
    out = tmp_path / "gpu.json"
    done = ask({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}, "--json-out", str(out))
    assert (done.returncode, out.exists()) == (1, False)
    assert done.stderr.startswith("make gpu: no NVIDIA driver")
    assert done.stderr.count("\n") == 1


def test_a_page_of_nothing_measured_is_the_one_that_is_kept() -> None:
    """Until hardware was asked: then its figures stand there, and the card's name."""
    text = (REPOSITORY / "bench" / "hardware.md").read_text(encoding="utf-8")
    if report.NOTHING in text:
        assert text == report.page(None, [], {})
    else:
        assert "Measured on" in text
        assert all(question.asks in text for question in report.QUESTIONS)


def test_a_page_names_the_card_and_each_figure_at_its_question() -> None:
    card = Card("Some card", "580.1", "GPU-1", 1 << 30, False, "2026-01-02")
    figures = [
        report.Figure("memory.context", 312.0, "MiB", None, {}),
        report.Figure("mps.start", 228.0, "ms", None, {}),
        report.Figure("mps.listed", 1, "servers", None, {}, "one"),
    ]
    text = report.page(card, figures, {"judge": "not asked"})
    rows = text[text.index("| --- |") :].splitlines()[1:]
    by_question = {question.name: row for question, row in zip(report.QUESTIONS, rows)}
    assert "Measured on 2026-01-02 on Some card, driver 580.1." in text
    assert by_question["memory.context"].endswith("| 312 MiB | `--context-memory 312MiB` |")
    assert by_question["mps"].endswith("| start 228 ms; listed 1 servers (one) |  |")
    assert by_question["judge"].endswith("| **unmeasured**: not asked |  |")
    assert by_question["memory.limit"].endswith("| **unmeasured** |  |")
