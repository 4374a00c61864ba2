"""The software GPU that is like a card: options of `softgpu create`, by the figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.result import Figure

# Above this part of a long kernel, a short one waits for its end.
NO_PREEMPTION_PERCENT = 50
# Below so many turns a second the GPU takes none between contexts.
FEWEST_TURNS = 1
# Streams that overlap are so much faster than one.
OVERLAP = 1.5
# A copy that is faster takes no time, which is the software GPU's default.
MOST_GIB_PER_S = 20_000.0


def _rate(option: str) -> Callable[[float], str]:
    return lambda rate: f"{option} {rate * 1024:.0f}MiB/s" if rate < MOST_GIB_PER_S else ""


# By figure, an option of the unkind clock; "": the default serves.
OF_SLICES: dict[str, Callable[[float], str]] = {
    "clock.slice, length": lambda ms: f"--slice {ms * 1e3:.0f}us",
    "clock.slice, a change of context": lambda us: f"--switch-cost {us:.0f}us",
    "clock.preemption, median wait": lambda percent: (
        "--no-preemption" if percent > NO_PREEMPTION_PERCENT else ""
    ),
}
OF_SUBMISSIONS: dict[str, Callable[[float], str]] = {
    "clock.submission": lambda us: f"--submit-time {us * 1e3:.0f}ns",
}
OF_EVERY_CLOCK: dict[str, Callable[[float], str]] = {
    "clock.copies from the host": _rate("--bus-rate"),
    "clock.copies within the GPU": _rate("--copy-rate"),
    "memory.context": lambda mib: f"--context-memory {mib:.0f}MiB" if mib >= 1 else "",
}


def values(figures: Sequence[Figure]) -> dict[str, str]:
    """By figure, its option of `softgpu create`; those without one are left out."""
    measured = {figure.name: figure.value for figure in figures}
    options = dict(OF_EVERY_CLOCK)
    found = {}
    if measured.get("clock.slice, turns that show", FEWEST_TURNS) >= FEWEST_TURNS:
        options.update(OF_SLICES | OF_SUBMISSIONS)
    elif measured.get("clock.streams narrow", OVERLAP) >= OVERLAP:
        options.update(OF_SUBMISSIONS)
        found["clock.slice, turns that show"] = "--mps"
    else:
        found["clock.slice, turns that show"] = "--clock kind"
    found |= {name: option(measured[name]) for name, option in options.items() if name in measured}
    return {name: option for name, option in found.items() if option}


def command(figures: Sequence[Figure]) -> list[str]:
    """All of them, as arguments of `softgpu create`."""
    return " ".join(values(figures).values()).split()
