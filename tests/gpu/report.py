"""bench/hardware.md: each question, the expected answer, and the measured one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.result import Figure
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
        "what the shim adds to a training step in PyTorch",
        "0.5 % at most",
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
        "the same for two at once, 30/70, 50/50, 20/40, and what of the GPU is lost to both",
        "2 points and 3 % at most; more where event intervals hold the other's turns",
    ),
    Question(
        "events.beside",
        "how many times as long an event pair's interval is beside a busy process",
        "between 1 (own time alone) and 2 (the other's turns too); the software GPU has 1",
    ),
    Question(
        "charged",
        "what two busy containers are charged, against the GPU time of their work",
        "as the row above",
    ),
    Question(
        "judge",
        "answers to the tests' table of misuse that are not the driver's",
        "0",
    ),
)

TEXT = """\
# On hardware

What only a GPU can answer. {state}

```sh
sudo make gpu                     # root, an NVIDIA driver, a GPU that nothing else uses
sudo make gpu PYTHON=/path/to/python
sudo make gpu ARGS="--only share.alone --seconds 5"
```

It runs each question on the driver alone and through the shim, in a private mount namespace; it
needs no engine, takes some ten minutes, and writes this table and `build/gpu.json`. Nothing of the
card's settings is changed, and memory is taken by plain allocations, a part of what is free. The
training step needs PyTorch, of the interpreter that `PYTHON` names. `--only` asks one question, and
leaves this table alone.

GPU time is counted in work, not by a clock: a kernel of so many steps does no more of them while
the GPU serves another process. How long a step takes is measured on the GPU alone, first.

| question | expected | measured |
| --- | --- | --- |
{rows}
"""

NOTHING = "**Nothing here has been measured yet.**"


def row(question: Question, figures: Sequence[Figure], reason: str | None) -> str:
    said = "; ".join(
        " ".join([figure.name.removeprefix(question.name), f"{figure.value:.3g}", figure.unit])
        for figure in figures
        if figure.name.startswith(question.name)
    )
    measured = said.strip() or UNMEASURED + (f": {reason}" if reason else "")
    return f"| {question.asks} | {question.expected} | {measured} |"


def page(card: Card | None, figures: Sequence[Figure], unmeasured: Mapping[str, str]) -> str:
    """The whole file. CARD: None where nothing was measured."""
    state = NOTHING
    if card:
        state = f"Measured on {card.date} on {card.name}, driver {card.driver}."
    rows = [row(q, figures, unmeasured.get(q.name)) for q in QUESTIONS]
    return TEXT.format(state=state, rows="\n".join(rows))
