"""One workload's advice as a row, a screen and a JSON tree."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from vcuda_oci.model.allocation import Allocation

from ..advice import maximum, patch, recommend
from ..advice.demand import PEAK_DAYS, Demand
from ..advice.maximum import Maximum
from ..advice.recommend import recommend as recommended
from ..advice.workload import CONTAINER, POD, Workload
from ..text import table

HEADINGS = ("WORKLOAD", "CORE", "ADVISED", "MEMORY", "ADVISED", "DAYS", "NOTE")
_WIDTH = 80
_NOTES = {
    recommend.TOO_LITTLE: "too little data",
    recommend.IDLE: "idle",
    recommend.UNKNOWN: "unknown",
    recommend.REFUSED: "was refused memory",
    recommend.TAKES_ALL: "fills its memory",
    recommend.MAY_TAKE_ALL: "may fill its memory",
    recommend.DEMAND: "",
}


class Advised:
    """running: the workload's containers on this host. resources: of core and of memory in
    manifests, "" where none is offered. names: of the containers, by id.
    """

    def __init__(
        self,
        workload: Workload,
        demand: Demand,
        running: Sequence[Allocation],
        resources: tuple[str, str],
        names: Mapping[str, str],
    ) -> None:
        self.workload, self.demand, self.running = workload, demand, running
        self.names = names
        self.advice = recommended(demand)
        self.patch = patch.of(workload, self.advice, *resources)
        self.memory_bytes, self.core_percent = demand.share
        if running:  # the share may have changed since the last sample
            share = running[0].shares[0]
            self.memory_bytes, self.core_percent = share.memory_bytes, share.core_percent

    @property
    def reason(self) -> str:
        """Why nothing is recommended, or why it is."""
        if self.advice.memory_reason == recommend.TOO_LITTLE:
            return self._too_little()
        return f"memory: {self._memory()}; compute: {self._compute()}"

    def row(self) -> list[str]:
        advice = self.advice
        return [
            self.workload.shown,
            table.percent(self.core_percent),
            table.percent(advice.core_percent),
            table.size(self.memory_bytes),
            table.size(advice.memory_bytes),
            str(advice.days),
            _NOTES[advice.memory_reason],
        ]

    def lines(self, now: float) -> list[str]:
        advice = self.advice
        kind = f"{self.workload.kind}, {self.workload.image}".removesuffix(", ")
        ago = table.age(now - self.demand.last)
        seen = f"{table.count(advice.days, 'day')}, {self.demand.samples} samples, last {ago} ago"
        sure = f"; confidence: {advice.confidence}" if advice.confidence else ""
        memory = "" if advice.memory_bytes is None else table.size(advice.memory_bytes)
        compute = "" if advice.core_percent is None else f"{advice.core_percent} %"
        lines = [
            f"{self.workload.shown} ({kind})",
            f"seen on {seen}{sure}",
            "",
            *table.lines(
                ("", "HAS", "ADVISED"),
                [
                    ("memory", table.size(self.memory_bytes), memory or "leave it"),
                    ("compute", f"{self.core_percent} %", compute or "leave it"),
                ],
            ),
            "",
        ]
        if advice.memory_reason == recommend.TOO_LITTLE:
            return [*lines, *_wrapped(self._too_little())]
        lines += [*_wrapped(f"memory: {self._memory()}"), *_wrapped(f"compute: {self._compute()}")]
        return [*lines, *self._commands()]

    def as_json(self) -> dict[str, Any]:
        demand, advice = self.demand, self.advice._asdict()
        return {
            **self.workload._asdict(),
            "workload": self.workload.shown,
            "containers": [each.id for each in self.running],
            "has": {"memory_bytes": self.memory_bytes, "core_percent": self.core_percent},
            "recommended": {key: advice.pop(key) for key in ("memory_bytes", "core_percent")},
            **advice,
            "reason": self.reason,
            "samples": demand.samples,
            "refused": demand.refused,
            "first": demand.first,
            "last": demand.last,
            "patch": self.patch or None,
        }

    def _commands(self) -> list[str]:
        lines = []
        if self.patch:
            what = "in 'docker run'" if self.workload.kind == CONTAINER else "for new pods"
            lines += ["", f"{what}:", self.patch]
        elif self.workload.kind not in (CONTAINER, POD) and patch.figures(self.advice):
            lines += ["", f"change the manifest: a {self.workload.kind} cannot be patched"]
        live = [patch.limit(self.names[each.id], self.advice) for each in self._changeable]
        if any(live):
            apply = f"or vcuda advise {self.workload.shown} --apply"
            lines += ["", f"for running containers ({apply}):", *live]
        return [*lines, *self._above_maximum()]

    def _above_maximum(self) -> list[str]:
        """What --apply does not do by itself."""
        if not self._changeable:
            return []
        most, found = maximum.of(self._changeable[0], 0, Maximum()), []
        for name, wanted, asked in (
            ("core", self.advice.core_percent, most.core_percent),
            ("memory", self.advice.memory_bytes, most.memory_bytes),
        ):
            if wanted and asked and wanted > asked:
                shown = f"{asked} %" if name == "core" else table.size(asked)
                found += _wrapped(
                    f"{name} above {shown}, what it asked for: --apply needs --max-{name} for that"
                )
        return ["", *found] if found else []

    @property
    def _changeable(self) -> list[Allocation]:
        """The running containers that `vcuda limit` can change: not under MPS, and without an
        instance of their own."""
        return [each for each in self.running if not each.isolation]

    def _too_little(self) -> str:
        hours = (self.demand.last - self.demand.first) / 3600
        needed = recommend.LEAST_SECONDS / 3600
        return (
            f"too little data: {self.demand.samples} samples over {hours:.0f} h; advice needs "
            f"{recommend.LEAST_SAMPLES} samples over {needed:.0f} h"
        )

    def _memory(self) -> str:
        advice = self.advice
        if advice.memory_reason == recommend.IDLE:
            return "it has held none"
        if advice.peak_bytes is None:
            return "its figures are unknown"
        part = self.demand.fills.part
        if advice.memory_reason == recommend.TAKES_ALL:
            return (
                f"it takes {part:.0%} of whatever limit it has, so what it needs cannot be seen; "
                "limit it in the framework, such as vLLM's gpu_memory_utilization"
            )
        if advice.memory_reason == recommend.MAY_TAKE_ALL:
            return (
                f"it holds {part:.0%} of its limit all the time; whether it needs that or takes "
                "what is there shows under another limit"
            )
        usual = advice.usual_bytes
        days = table.count(min(PEAK_DAYS, advice.days), "day")
        text = f"it needed {table.size(advice.peak_bytes)} at most in {days}"
        if usual is not None and usual < advice.peak_bytes:
            text += f", up to {table.size(usual)} on nine days of ten"
        if self.demand.refused:
            text += f"; refused allocations: {self.demand.refused}"
        return text

    def _compute(self) -> str:
        advice = self.advice
        if advice.core_reason == recommend.IDLE or advice.wanted_percent is None:
            return "it has not used the GPU"
        text = (
            f"nine tenths of its work take up to {advice.used_percent:.0f} % of the GPU's time, "
            f"with what it waits for {advice.wanted_percent:.0f} %"
        )
        if advice.core_reason == recommend.TAKES_ALL:
            text += "; it takes all the time that it gets"
        return text


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ")
