"""What is printed and kept of the answers; bench/hardware.md has them beside the questions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.result import Figure, table
from gpu import model
from gpu.machine import Card

UNMEASURED = "**unmeasured**"


class Question(NamedTuple):
    name: str  # the first word of its figures' names
    asks: str
    expected: str


QUESTIONS = (
    Question(
        "memory.limit",
        "bytes that a container gets beyond its slice, and misses of it",
        "0 beyond; less than the driver's granule (2 MiB) missed",
    ),
    Question(
        "memory.nvml",
        "NVML's figure of a process (`nvmlDeviceGetComputeRunningProcesses`), less its context, "
        "against what its slice is charged",
        "within 2 MiB",
    ),
    Question(
        "memory.context",
        "what a context takes that no call names",
        "some hundred MiB, by card and driver",
    ),
    Question(
        "memory.stack",
        "what a stack of 4 KiB, a `printf` buffer of 32 MiB and a heap of 64 MiB take by NVML, "
        "above what they are charged",
        "within 2 MiB; 87 MiB less where the driver waits for a kernel that needs buffer and heap",
    ),
    Question(
        "memory.module",
        "the same for compiled code with a variable of 100 MB",
        "within 4 MiB",
    ),
    Question(
        "overhead.call",
        "what the shim adds to a driver call",
        "as on the software GPU: single to some tens of nanoseconds",
    ),
    Question(
        "overhead.training",
        "what the shim adds to a training step in PyTorch; how far two processes without it are "
        "apart",
        "0.5 % at most; less",
    ),
    Question(
        "frameworks",
        "bytes that PyTorch, CuPy, JAX and Numba get beyond a slice of 4 GiB; each is refused in "
        "its own manner, and works on",
        "0",
    ),
    Question(
        "clock.slice",
        "how long the GPU serves one context while another has work, and what a change of context "
        "costs: two processes with kernels of 20 us, an event behind each",
        "some ms, and 10 to 500 us",
    ),
    Question(
        "clock.preemption",
        "the median wait for a kernel of 20 us beside kernels of 200 ms of another process, as a "
        "part of one of these",
        "a slice and two changes; 100 % where a kernel runs to its end",
    ),
    Question(
        "events.beside",
        "how many times as long an event pair's interval is beside a busy process; kernels of "
        "50 ms",
        "2 or more: the other's turns and the changes too; 1 where a kernel runs to its end",
    ),
    Question(
        "clock.streams",
        "how much faster kernels on eight streams of one process are than on one stream: narrow "
        "ones, and ones that fill the GPU",
        "8 and 1",
    ),
    Question(
        "clock.copies",
        "the rate of copies from pinned host memory and within the GPU; how much of a copy from "
        "the host runs beside a kernel",
        "by card and bus; 100 %",
    ),
    Question(
        "clock.submission",
        "what a launch takes of its thread",
        "1 to 5 us",
    ),
    Question(
        "nvml.utilisation",
        "how far `nvmlDeviceGetProcessUtilization` is from the work of a container with 30 %, and "
        "of two busy processes",
        "a few points: it has whole percents, of windows of 1/6 to 1 s",
    ),
    Question(
        "share.alone",
        "how far a container is from its 10, 30, 50, 80 %, the worst of them: kernels of 50 us "
        "launched ahead, of 5 ms and of 300 ms waited for, graphs of 100 x 50 us, kernels of one "
        "block",
        "2 points at most",
    ),
    Question(
        "share.two",
        "how far two busy containers are from 30/70, 50/50, 20/40 and 90/10 with the turn keeper, "
        "the worst of seven pairs of loads; what of the GPU is lost; work outside of turns",
        "2 points, 3 % and 1 point at most",
    ),
    Question(
        "charged",
        "what two busy containers without a turn keeper are charged, against the GPU time of "
        "their work",
        "1 where event pairs leave out other contexts' turns, else up to 2",
    ),
    Question(
        "suspend.rate",
        "the driver's checkpoint and restore of up to 8 GiB of a process in a pid namespace of "
        "its own: lock, rates, what stays on the GPU meanwhile, wrong words afterwards",
        "2 to 4 GiB/s; 0 MiB; 0",
    ),
    Question(
        "suspend.first call",
        "what the first call of a suspended container takes beyond the driver's calls",
        "200 ms at most",
    ),
    Question(
        "suspend.refusal",
        "the driver's error for a process with managed memory, and with an exported memory handle",
        "801 and 0, and the process works on",
    ),
    Question(
        "suspend.no room",
        "processes that are lost where the container is resumed while others have its memory, and "
        "again when they have ended",
        "0",
    ),
    Question(
        "suspend.restore",
        "the driver's errors of a restore that finds no room, and of a second one with room",
        "2, then 304: the process can never be restored",
    ),
    Question(
        "suspend.killed",
        "processes that are lost because the caller of a checkpoint or a restore was killed",
        "0: the copy goes on, and the call can be made again",
    ),
    Question(
        "mps",
        "a private MPS daemon for all users: how long its server takes to start; what part of the "
        "multiprocessors a client with 30 % sees; a client that sees `control` alone of the pipe "
        "directory, and whether `control` obeys it; the server's files in `/dev/shm`; whether NVML "
        "lists the server",
        "some 100 ms; 28.8 % where multiprocessors are given in pairs; 0; 0 from driver 580 on; 1",
    ),
    Question(
        "namespaces",
        "an MPS daemon of version 3, with a namespace of 30 %: what part of the multiprocessors a "
        "client in it sees that has a percentage of 100 of its own, and of 10; a client that sees "
        "the namespace's `control` alone, and whether that obeys its root's `namespace set`; the "
        "columns of `namespace list`",
        "30 %; 30 % by NVIDIA's guide, 10 % by a report; 0; not 0. From driver 615 on",
    ),
    Question(
        "partitions",
        "static partitions of one and of two chunks: how wide a chunk is; how far what a client of "
        "it sees is off; what it sees with a percentage of 10; the error of a client that names no "
        "partition; whether one is made beside a client; from driver 620 on, whether a namespace "
        "takes a partition, and holds a client that names another to it",
        "8; 0; 8; 915; not 0; 0; 0. From driver 615 on",
    ),
    Question(
        "static",
        "static partitions of MPS version 2 (`-S`), one of one chunk: how wide a chunk is; how far "
        "what a client of it sees is off; what it sees with a percentage of 10; the error of a "
        "client that names no partition; whether it is left when it is removed beside its client; "
        "whether another is made there",
        "8, 4 before the H100; 0; as wide; 915; 1; 1. From driver 590 on",
    ),
    Question(
        "limits",
        "a cgroup that the driver itself limits to 512 MiB, hard = soft: what its process gets "
        "beyond it, what `cuMemGetInfo` and NVML show it, what the driver counts above what it "
        "got, and the error where its root widens the limit",
        "0; some hundred MiB less for its context; 0 off; not 0. From driver 615 on",
    ),
    Question(
        "mig",
        "the plain MIG profiles that NVML has, and those with other slices or places than the "
        "software GPU's table of the model; nothing is created",
        "6; 0",
    ),
    Question(
        "judge",
        "answers of the driver that the tests' table of misuse does not have",
        "0",
    ),
)

TEXT = """\
# On hardware

What only a GPU can answer. {state}

```sh
sudo make gpu                     # root, an NVIDIA driver, a GPU that nothing else uses
sudo make gpu PYTHON=/path/to/python
sudo make gpu ARGS="--only clock.slice --only share.two --seconds 10"
sudo make gpu ARGS=--json         # the answers as JSON, on stdout
sudo make gpu SOFTGPU_ROOT=/run/softgpu LD_LIBRARY_PATH=/run/softgpu/usr/lib/x86_64-linux-gnu
```

It runs each question on the driver alone and through the shim, in a private mount namespace; it
needs no engine, takes more than ten minutes, and writes this table and `build/gpu.json`. Nothing of
the card's settings is changed, and memory is taken by plain allocations, a part of what is free.
The training step needs PyTorch, of the interpreter that `PYTHON` names. `--only` asks one question,
and leaves this table alone, as does a software GPU.

GPU time is counted in work, not by a clock: a kernel of so many steps does no more of them while
the GPU serves another process. How long a step takes is measured on the GPU alone, first. A window
of 300 ms kernels holds few of them: there the shares are known to about 2 points.

The last column has the option of [`softgpu create`](../docs/softgpu.md#time) that makes a software
GPU answer as this card. {model}

| question | expected | measured | model |
| --- | --- | --- | --- |
{rows}
"""

NOTHING = "**Nothing here has been measured yet.**"


def warnings(others: int, load: float, processors: int) -> list[str]:
    """Before anything is measured. others: processes on the GPU; load: of the last minute."""
    found = []
    if others:
        found.append(f"{others} other processes use this GPU: figures of time are theirs too")
    if load > processors / 2:
        found.append(
            f"load {load:.1f} on {processors} processors: loads that come late lose parts of their"
            " shares; run it on an idle machine"
        )
    return found


def answers(figures: Sequence[Figure], unmeasured: Mapping[str, str]) -> str:
    """What is printed: the figures, the questions without one, and the card's model."""
    lines = [table(figures)]
    lines += [f"{name:34} unmeasured: {reason}" for name, reason in unmeasured.items()]
    options = model.values(figures)
    if options:
        lines.append("\nA software GPU that answers as this card:")
        values = {figure.name: f"{figure.value:.4g} {figure.unit}" for figure in figures}
        lines += [f"{name:34} {values[name]:>16}  {options[name]}" for name in options]
        lines.append("softgpu create ROOT " + " ".join(model.command(figures)))
    return "\n".join(lines)


def as_json(card: Card, figures: Sequence[Figure], unmeasured: Mapping[str, str]) -> str:
    """model: of a figure, its option; of all, the arguments of `softgpu create`."""
    options = model.values(figures)
    rows = [
        {**dataclasses.asdict(one), "met": one.met, "model": options.get(one.name)}
        for one in figures
    ]
    kept = {
        "device": card._asdict(),
        "figures": rows,
        "unmeasured": dict(unmeasured),
        "model": model.command(figures),
    }
    return json.dumps(kept, indent=1) + "\n"


def row(question: Question, figures: Sequence[Figure], reason: str | None) -> str:
    own = [figure for figure in figures if figure.name.startswith(question.name)]
    said = "; ".join(
        f"{figure.name.removeprefix(question.name).strip(' .,')} {figure.value:.3g} {figure.unit}"
        + (f" ({figure.note})" if figure.note else "")
        for figure in own
    )
    measured = said.strip() or UNMEASURED + (f": {reason}" if reason else "")
    options = " ".join(f"`{option}`" for option in model.values(own).values())
    return f"| {question.asks} | {question.expected} | {measured} | {options} |"


def page(card: Card | None, figures: Sequence[Figure], unmeasured: Mapping[str, str]) -> str:
    """The whole file. card: None where nothing was measured."""
    state, create = NOTHING, ""
    if card:
        state = f"Measured on {card.date} on {card.name}, driver {card.driver}{card.how}."
        create = f"All of them: `softgpu create ROOT {' '.join(model.command(figures))}`."
    rows = [row(q, figures, unmeasured.get(q.name)) for q in QUESTIONS]
    return TEXT.format(state=state, rows="\n".join(rows), model=create).replace(". \n", ".\n")
