"""``vcuda drain``, ``undrain``, ``rebalance``: a plan first, then moves and suspends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vcuda_oci.container import request
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import unhealthy
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.system.settings_file import Config

from ..drain import drain as drains
from ..drain import rebalance as moves
from ..drain.drain import Result
from ..drain.drain_plan import ASLEEP, MOVE, STAY, SUSPEND, Step
from ..drain.rebalance import Proposal
from ..live import views
from ..names import container_names
from ..suspend import relocation
from ..text import table
from .suspend import Progress, opened

_HEADINGS = ("CONTAINER", "PLAN", "HOLDS", "TO", "WHY")
_DONE = {MOVE: "moved", SUSPEND: "suspended", ASLEEP: "resumed"}


def drain(arguments: argparse.Namespace, settings: Config) -> int:
    """Empty a GPU; 1: some of its containers stay. Raises VcudaError: refused."""
    facts, ledger = opened(arguments, settings)
    gpu, rules = relocation.gpu_of(facts, arguments.gpu), rules_of(settings)
    show = _Show(arguments, ledger, facts)
    plan = drains.planned(ledger, facts, gpu.uuid, rules)
    if not arguments.json:
        print(f"GPU {gpu.index}, {gpu.uuid}: {table.count(len(plan), 'container')}")
        show.plan(plan)
    if not show.may_begin(f"Drain GPU {gpu.index}?"):
        was = gpu.uuid in unhealthy.read_drained(ledger.state_dir)
        return show.answer(gpu.uuid, [Result(step) for step in plan], drained=was)
    results = drains.drain(ledger, facts, gpu.uuid, rules, arguments.timeout, show.begin)
    show.results(results)
    stay = [one for one in results if one.step.action == STAY]
    if not arguments.json:
        left = f"; {table.count(len(stay), 'container')} on it" if stay else ""
        print(f"GPU {gpu.index} is drained: it gets no new containers{left}")
    return show.answer(gpu.uuid, results, drained=True) or int(bool(stay))


def undrain(arguments: argparse.Namespace, settings: Config) -> int:
    """Use a GPU again; 1: a container could not be resumed. Raises VcudaError: refused."""
    facts, ledger = opened(arguments, settings)
    gpu = relocation.gpu_of(facts, arguments.gpu)
    show = _Show(arguments, ledger, facts)
    was, results = drains.undrain(
        ledger, facts, gpu.uuid, rules_of(settings), arguments.timeout, show.begin
    )
    show.results(results)
    if not arguments.json:
        print(f"GPU {gpu.index} is in use again" if was else f"GPU {gpu.index} was not drained")
    return show.answer(gpu.uuid, results, drained=False)


def rebalance(arguments: argparse.Namespace, settings: Config) -> int:
    """Make room for a request; 1: there is no way. Raises VcudaError: refused."""
    facts, ledger = opened(arguments, settings)
    words = {key: getattr(arguments, key) for key in ("core", "memory", "placement")}
    words["gpu"] = ",".join(arguments.gpu) or None
    given = {key: value for key, value in words.items() if value is not None}
    wanted = request.parse(request.RawRequest(given, "command line"))
    rules, show = rules_of(settings), _Show(arguments, ledger, facts)
    found = moves.proposed(ledger, facts, wanted, rules)
    results: list[Result] = []
    if found.moves:
        plan = [Step(one.id, MOVE, one.bytes, one.target) for one in found.moves]
        if not arguments.json:
            show.plan(plan)
        if not show.may_begin("Move them?", needs_yes=False):
            return show.moves(found, [Result(step) for step in plan])
        found, results = moves.rebalance(
            ledger, facts, wanted, rules, arguments.timeout, show.begin
        )
        show.results(results)
    if not arguments.json and found.moves == []:
        print("it fits now" if results else "it fits already: nothing is to be moved")
    if found.moves is None and not arguments.json:
        show.no_way(found)
    return show.moves(found, results) or (1 if found.moves is None else 0)


class _Show:
    """Prints plans and what became of them."""

    def __init__(self, arguments: argparse.Namespace, ledger: Ledger, facts: Host) -> None:
        self._arguments, self._progress = arguments, Progress("")
        self._names = {gpu.uuid: f"GPU {gpu.name}" for gpu in facts.gpus}
        self._records = ledger.read()[0]
        shown = container_names.of(self._records)
        self._of = {one.id: shown[one.id].name or views.short_id(one.id) for one in self._records}

    def plan(self, steps: Sequence[Step]) -> None:
        rows = [
            (
                self._name(step),
                step.action,
                table.size(step.bytes),
                self._names.get(step.target, "-"),
                _why(step),
            )
            for step in steps
        ]
        if rows:
            table.print_table(_HEADINGS, rows, _HEADINGS.index("WHY"))

    def may_begin(self, question: str, *, needs_yes: bool = True) -> bool:
        """Whether the plan is to be done. Raises VcudaError: there is no terminal to ask."""
        if self._arguments.dry_run:
            return False
        if self._arguments.yes:
            return True
        if sys.stdin.isatty() and sys.stdout.isatty() and not self._arguments.json:
            try:
                return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
            except (EOFError, KeyboardInterrupt):
                print()
                return False
        if needs_yes:
            what, hint = "nothing is changed", "add --yes to do it, or --dry-run to see the plan"
            raise VcudaError(what, f"vcuda {self._arguments.verb}", hint)
        return False

    def begin(self, step: Step) -> Callable[[str, int], None]:
        self._progress.clear()
        self._progress = Progress(self._name(step))
        return self._progress.show

    def results(self, results: Sequence[Result]) -> None:
        self._progress.clear()
        for one in results:
            name = self._name(one.step)
            if one.error:
                error = container_names.named(one.error, self._records)
                sys.stderr.write(f"vcuda: {name}: {table.printable(error)}\n")
            if one.done and one.done.changed and not self._arguments.json:
                to = self._names.get(one.step.target)
                where = f" to {to}" if to else ""
                held = table.size(sum(one.done.bytes.values()))
                did = f"{_DONE[one.step.action]}{where}"
                print(f"{name} is {did}: {held} in {one.done.seconds:.1f} s")
            if one.step.action == STAY:
                sys.stderr.write(f"vcuda: {name} stays: {_why(one.step)}\n")
            for pid in one.done.lost if one.done else ():
                sys.stderr.write(f"vcuda: {name}: the driver has given up process {pid}; end it\n")

    def no_way(self, found: Proposal) -> None:
        if found.refused:
            why = f"it does not fit, and no moves make room: {found.refused.reason}"
            sys.stderr.write(f"vcuda: {why}\n")
        for one in found.unmoved:
            why = "; ".join(filter(None, one.unmoved or ()))
            sys.stderr.write(f"vcuda: {self._of[one.record.id]} cannot be moved: {why}\n")

    def answer(self, uuid: str, results: Sequence[Result], *, drained: bool) -> int:
        if self._arguments.json:
            steps = [self._as_json(one) for one in results]
            table.print_json({"gpu_uuid": uuid, "drained": drained, "steps": steps})
        return _code(results)

    def moves(self, found: Proposal, results: Sequence[Result]) -> int:
        if self._arguments.json:
            tree: dict[str, Any] = {
                "fits": found.moves == [],
                "possible": found.moves is not None,
                "reason": found.refused.reason if found.refused else None,
                "moves": [self._as_json(one) for one in results],
            }
            table.print_json(tree)
        return _code(results)

    def _as_json(self, one: Result) -> Mapping[str, Any]:
        step = one.step
        return {
            "id": step.id,
            "name": self._name(step),
            "action": step.action,
            "bytes": step.bytes,
            "to_gpu_uuid": step.target or None,
            "reason": step.reason or None,
            "hint": step.hint or None,
            "changed": bool(one.done and one.done.changed),
            "seconds": round(one.done.seconds, 3) if one.done else None,
            "lost": list(one.done.lost) if one.done else [],
            "error": one.error or None,
        }

    def _name(self, step: Step) -> str:
        return self._of.get(step.id, step.id)


def _why(step: Step) -> str:
    return f"{step.reason}; {step.hint}" if step.hint and step.action != SUSPEND else step.reason


def _code(results: Sequence[Result]) -> int:
    return 1 if any(one.error or (one.done and one.done.lost) for one in results) else 0
