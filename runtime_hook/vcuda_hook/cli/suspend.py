"""``vcuda suspend``, ``resume``, ``move``: take containers off their GPUs, and bring them
back to the same ones or to others.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from vcuda_oci.host.host import Host
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import BY_ORDER
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.start import apply_share
from vcuda_oci.system.settings_file import Config

from ..names import container_names
from ..suspend import control, elsewhere, repairs
from ..suspend.places import Done
from ..text import table

_WORDS = {
    "lock": "waiting for calls in flight",
    "checkpoint": "copying off the GPU",
    "restore": "copying back to the GPU",
    "unlock": "letting it go on",
    "wait": "the driver is copying",
}
_NOTHING = Done({}, changed=False)
# One container, with what shows its progress.
_Verb = Callable[[Ledger, Host, str, "Progress"], Done]


def suspend(arguments: argparse.Namespace, settings: Config) -> int:
    """Take the containers off their GPUs. Raises VcudaError: not root, or no such container."""

    def one(ledger: Ledger, facts: Host, id: str, progress: Progress) -> Done:
        rules = rules_of(settings)
        return control.suspend(ledger, facts, id, rules, BY_ORDER, arguments.timeout, progress.show)

    return _each(arguments, settings, one, "suspended")


def resume(arguments: argparse.Namespace, settings: Config) -> int:
    """Bring the containers back, each as soon as there is room. Raises VcudaError as `suspend`."""

    def one(ledger: Ledger, facts: Host, id: str, progress: Progress) -> Done:
        return control.resume(
            ledger,
            facts,
            id,
            rules_of(settings),
            arguments.timeout,
            progress.show,
            lambda reason: progress.wait(container_names.named(reason, ledger.read()[0])),
            arguments.gpu,
        )

    return _each(arguments, settings, one, "running")


def move(arguments: argparse.Namespace, settings: Config) -> int:
    """Bring the containers to another GPU. Raises VcudaError as `suspend`."""

    def one(ledger: Ledger, facts: Host, id: str, progress: Progress) -> Done:
        rules = rules_of(settings)
        return control.move(
            ledger, facts, id, arguments.gpu, rules, arguments.timeout, progress.show
        )

    return _each(arguments, settings, one, "moved")


def _each(arguments: argparse.Namespace, settings: Config, verb: _Verb, now: str) -> int:
    """Call `verb` for each container, one after the other; 1: one of them failed."""
    facts, ledger = opened(arguments, settings)
    found = [container_names.find_record(ledger, word) for word in arguments.id]
    names = {each.id: container_names.shown(ledger, each) for each in found}
    answers: list[dict[str, Any]] = []
    for id, name in names.items():
        progress = Progress(name)
        try:
            done = verb(ledger, facts, id, progress)
        except VcudaError as error:
            progress.clear()
            container_names.name_in(error, ledger.read()[0])
            sys.stderr.write(f"vcuda: {error}\n")
            answers.append({"id": id, "changed": False, "error": str(error), **_figures(_NOTHING)})
            continue
        except KeyboardInterrupt:
            progress.clear()
            repairs.repair(ledger, facts, id, control.TURN_SECONDS)  # without an agent too
            raise
        progress.clear()
        answers.append({"id": id, "changed": done.changed, "error": None, **_figures(done)})
        if not arguments.json:
            print(table.printable(_line(name, done, now)))
        for pid in done.lost:
            line = f"vcuda: {name}: the driver has given up process {pid}; end it"
            sys.stderr.write(table.printable(line) + "\n")
    if arguments.json:
        table.print_json(answers)
    return 1 if any(each["error"] or each["lost"] for each in answers) else 0


def opened(arguments: argparse.Namespace, settings: Config) -> tuple[Host, Ledger]:
    """The host and its ledger, for a verb that changes containers. Raises VcudaError: not root."""
    if os.geteuid() != 0:
        raise VcudaError("needs root", f"vcuda {arguments.verb}", "run it as root")
    facts, ledger = apply_share.host_of(settings), Ledger(settings.state_dir)
    elsewhere.settle_nodes(ledger, facts)
    return facts, ledger


def _figures(done: Done) -> dict[str, Any]:
    return {"bytes": done.bytes, "seconds": round(done.seconds, 3), "lost": list(done.lost)}


def _line(name: str, done: Done, now: str) -> str:
    if not done.changed:
        return f"{name} is {'there' if now == 'moved' else now} already"
    held = table.size(sum(done.bytes.values()))
    if now == "moved":
        return f"{name} is moved: {held} to the other GPU in {done.seconds:.1f} s"
    where = "off" if now == "suspended" else "back on"
    return f"{name} is {now}: {held} {where} the GPU in {done.seconds:.1f} s"


class Progress:
    """What the driver does with a container: one line on stderr, overwritten again and again, if
    that is a terminal.
    """

    def __init__(self, name: str) -> None:
        self._name, self._begun, self._is_shown = name, time.monotonic(), False

    def show(self, call: str, left: int) -> None:
        many = f" of {left} processes" if left > 1 and call != "unlock" else ""
        self._write(f"{_WORDS.get(call, call)}{many}")

    def wait(self, reason: str) -> None:
        self._write(f"waiting for room: {reason}")

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _write(self, what: str) -> None:
        if sys.stderr.isatty():
            self._is_shown = True
            line = f"{self._name}: {what}, {time.monotonic() - self._begun:.0f} s"
            sys.stderr.write("\r\033[K" + table.printable(line)[:200])
            sys.stderr.flush()
