"""``vcuda cdi``: write CDI specs of this host's GPUs and of named slices.

With --watch a spec is written again when the driver, the GPUs or the named slices change. Each
check reads everything again, which takes a few milliseconds: /proc and /dev report no changes.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import NoReturn

from vcuda_oci.ledger import events
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import apply_share
from vcuda_oci.system.settings_file import Config

from ..live import slices
from ..text import table
from . import cdi_kind, spec_file

STANDARD_OUTPUT = "-"


def run(arguments: argparse.Namespace, settings: Config) -> int:
    return (
        remove(arguments, settings) if arguments.cdi == "remove" else generate(arguments, settings)
    )


def generate(arguments: argparse.Namespace, settings: Config) -> int:
    """Claim the new slices and write the spec; on an error release them again."""
    wanted = dict(slices.parse(text) for text in arguments.slice)
    output = arguments.output or cdi_kind.output_of(arguments.kind)
    kind = arguments.kind or cdi_kind.of_file(output)
    cdi_kind.refuse_conflict(kind, output)
    if output == STANDARD_OUTPUT and (arguments.watch or arguments.json):
        raise VcudaError("must be a file with --watch or --json", "--output", "name a file")
    ledger = Ledger(settings.state_dir)
    facts = apply_share.host_of(settings)
    made: list[str] = []
    try:
        for name, request in wanted.items():
            if slices.claim_slice(ledger, facts, name, request, settings):
                made.append(name)
        if output == STANDARD_OUTPUT:
            text, _ = spec_file.spec_text(ledger, facts, settings, kind)
            sys.stdout.write(text)
            return 0
        with ledger:
            changed, devices = spec_file.write(ledger, facts, settings, output, kind)
    except BaseException:
        with ledger:
            for name in made:
                ledger.remove(slices.id_of(name))
        raise
    if arguments.json:
        table.print_json({"path": output, "changed": changed, "devices": devices})
    else:
        print(f"{'wrote' if changed else 'unchanged'} {output}: {', '.join(devices)}", flush=True)
    if arguments.watch:
        _watch(ledger, settings, output, kind, arguments.interval)
    return 0


def _watch(ledger: Ledger, settings: Config, path: str, kind: str, seconds: float) -> NoReturn:
    """Run until SIGTERM or SIGINT; print one line for each time the spec was written.

    A failure, for example during an update of the driver, is reported once on stderr and tried
    again. Until then the spec stays unchanged; a container does not start while its files are
    missing.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    reported = ""
    while True:
        time.sleep(seconds)
        try:
            facts = apply_share.host_of(settings)
            with ledger:
                changed, devices = spec_file.write(ledger, facts, settings, path, kind)
        except VcudaError as error:
            if str(error) != reported:
                sys.stderr.write(f"vcuda: {error}\n")
            reported = str(error)
            continue
        reported = ""
        if changed:
            print(f"wrote {path}: {', '.join(devices)}", flush=True)


def remove(arguments: argparse.Namespace, settings: Config) -> int:
    """Remove the slices from the specs, then release them.

    Checks all of them before it removes any. Raises VcudaError: no such slice, or a process uses
    it.
    """
    ledger = Ledger(settings.state_dir)
    with ledger:
        known = {slices.name_of(allocation): allocation for allocation in slices.all_of(ledger)}
        for name in arguments.name:
            if name not in known:
                raise VcudaError("no slice of this name", name, "see 'vcuda ps'")
            if known[name].suspension:
                hint = f"run 'vcuda resume {known[name].id}' first"
                raise VcudaError("is suspended", name, hint)
            if not arguments.force and slices.is_in_use(ledger, known[name]):
                hint = "end it, or use --force: another may then get the same share"
                raise VcudaError("a process uses it", name, hint)
        specs = [arguments.output] if arguments.output else cdi_kind.written()
        kinds = {path: cdi_kind.of_file(path) for path in specs if os.path.exists(path)}
        for path, kind in kinds.items():
            spec_file.write(
                ledger, apply_share.host_of(settings), settings, path, kind, arguments.name
            )
        for name in arguments.name:
            if not slices.is_in_use(ledger, known[name]):
                slices.revoke(ledger, known[name])
            ledger.remove(known[name].id)
            ledger.record_event(events.RELEASED, known[name], "removed from the CDI spec")
    if arguments.json:
        table.print_json(arguments.name)
    else:
        for name in arguments.name:
            for kind in dict.fromkeys(kinds.values()) or [names.CDI_KIND]:
                print(f"removed {kind}={name}")
    return 0
