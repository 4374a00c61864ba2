"""``vcuda configure``: add vcuda to an engine's configuration, and undo that."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import apply_share
from vcuda_oci.system.own_lock import FolderLock
from vcuda_oci.system.settings_file import Config

from ..text import table
from . import containerd, crio, docker, engine_file, hooks_d, podman, undo_record
from .known import EVERY
from .outcome import Outcome, as_json, complain, show
from .plan import NAME, Options
from .text_edit import Done, added, digest, parse, removed
from .undo_record import Record

_LOCK_SECONDS = 30.0
_ENGINES: dict[str, Any] = {
    "docker": docker,
    "containerd": containerd,
    "crio": crio,
    "podman": podman,
}


def configure(arguments: argparse.Namespace, settings: Config) -> int:
    """Return 0: done, or nothing to do. 1: --undo left something, reported on stderr."""
    _refuse_what_does_not_fit(arguments)
    if arguments.engine == EVERY:
        return _undo_all(arguments, settings)
    engine = hooks_d if arguments.hooks else _ENGINES[arguments.engine]
    # A symlink stays, its target is edited.
    path = os.path.realpath(arguments.engine_config or engine.FILE)
    name = hooks_d.NAME if arguments.hooks else arguments.engine
    record = undo_record.path_of(settings.path, name, path)
    if arguments.undo:
        outcome = _undo(engine, path, record, arguments.dry_run)
    else:
        folder = os.path.dirname(apply_share.HOOK)
        beside = apply_share.HOOK if arguments.hooks else f"{folder}/{names.PROGRAM}"
        program = _program(arguments.runtime_path or beside)
        options = Options(path, program, settings.path, arguments.default, arguments.always)
        outcome = _do(engine, options, record, arguments.dry_run)
    if arguments.json:
        table.print_json(as_json(arguments.engine, outcome, arguments.dry_run))
    else:
        show(outcome, arguments.dry_run)
    return complain(outcome)


def again(name: str, record_path: str, settings: str, prefix: str) -> Outcome:
    """What the same `vcuda configure` would write now, for the programs below `prefix`.

    Changes nothing. Raises VcudaError: as `configure`.
    """
    engine = _named(name, record_path)
    path, record = undo_record.edited(record_path), undo_record.load(record_path)
    done = record.done.settings if record else []
    program = os.path.basename(apply_share.HOOK) if engine is hooks_d else names.PROGRAM
    options = Options(
        path,
        f"{prefix}/bin/{program}",
        settings,
        default=any(value == NAME for _, value in done),
        always=(("when",), {"always": True}) in done,
    )
    return _do(engine, options, record_path, dry_run=True)


def _undo_all(arguments: argparse.Namespace, settings: Config) -> int:
    """Undo every recorded edit; one that fails does not stop the others."""
    failed, outcomes = False, []
    for name, record in undo_record.all_of(settings.path):
        try:
            path = undo_record.edited(record)
            outcome = _undo(_named(name, record), path, record, arguments.dry_run)
        except VcudaError as error:
            sys.stderr.write(f"vcuda: {error}\n")
            failed = True
            continue
        outcomes.append(as_json(name, outcome, arguments.dry_run))
        if not arguments.json:
            show(outcome, arguments.dry_run)
        failed = bool(complain(outcome)) or failed
    if arguments.json:
        table.print_json(outcomes)
    elif not outcomes and not failed:
        print("nothing to undo: vcuda has edited no engine's file")
    return 1 if failed else 0


def _named(name: str, record: str) -> Any:
    """The engine's module. Raises VcudaError: unknown name."""
    if name == hooks_d.NAME:
        return hooks_d
    if name not in _ENGINES:
        raise VcudaError(f"unknown engine {name}", record, "remove that file")
    return _ENGINES[name]


def _do(engine: Any, options: Options, record_path: str, dry_run: bool) -> Outcome:
    path = options.path
    with _lock(record_path, dry_run):
        current = engine_file.read(path)
        record = undo_record.load(record_path)
        base, left = removed(current, record.done, path) if record else (current, [])
        if left:
            where = f"{path}: {left[0].where}"
            hint = "run it with --undo, correct the file, run this again"
            raise VcudaError(left[0].what, where, hint)
        text = base or ""
        if not text.strip() or (engine.FORM == "toml" and not parse("toml", text, path)):
            text = engine.NEW + text.lstrip()  # the file may hold only comments
        planned = engine.plan(parse(engine.FORM, text, path), options)
        after, fresh = added(engine.FORM, text, planned.settings, path)
        if not fresh or after == current:
            return Outcome(path, current, current)
        then_run = engine.AFTER_REMOVAL if record else engine.AFTER
        outcome = Outcome(path, current, after, planned.notes, then_run=then_run)
        if not dry_run:
            folders = engine_file.missing_folders(path) or (record.folders if record else [])
            done = Done(engine.FORM, base, [digest(current), digest(after)], fresh)
            undo_record.save(record_path, path, Record(done, folders))
            engine_file.replace(path, after, _staging(engine, path))
            try:
                engine.check(parse(engine.FORM, after, path), planned, options)
            except BaseException:
                engine_file.replace(path, current, _staging(engine, path))
                if record:
                    undo_record.save(record_path, path, record)
                else:
                    engine_file.remove_folders(folders)
                    undo_record.forget(record_path)
                raise
    return outcome


def _undo(engine: Any, path: str, record_path: str, dry_run: bool) -> Outcome:
    with _lock(record_path, dry_run):
        current = engine_file.read(path)
        record = undo_record.load(record_path)
        if record is None:
            note = f"nothing to undo: vcuda has not edited {path}"
            return Outcome(path, current, current, [note])
        after, left = removed(current, record.done, path)
        outcome = Outcome(path, current, after, [], list(map(str, left)), engine.AFTER_REMOVAL)
        if not dry_run:
            if after != current:
                engine_file.replace(path, after, _staging(engine, path))
            if after is None:
                engine_file.remove_folders(record.folders)
            undo_record.forget(record_path)
    return outcome


def _refuse_what_does_not_fit(arguments: argparse.Namespace) -> None:
    """Raises VcudaError: an option that the entry point or the engine does not have."""
    if arguments.engine == EVERY:
        for option in ("default", "hooks", "always", "engine_config", "runtime_path"):
            if getattr(arguments, option) or not arguments.undo:
                raise VcudaError("works only with --undo", EVERY, "use --undo alone")
        return
    if not arguments.hooks:
        if arguments.always:
            raise VcudaError("is an option of hooks", "--always", "use --hooks too")
        return
    if arguments.engine not in hooks_d.ENGINES:
        hint = f"leave it out; these have one: {', '.join(hooks_d.ENGINES)}"
        raise VcudaError(f"{arguments.engine} reads no hooks.d", "--hooks", hint)
    for option in ("default", "runtime_path"):
        if getattr(arguments, option):
            where = "--" + option.replace("_", "-")
            raise VcudaError("is an option of runtimes", where, "leave it out, or --hooks")


def _program(path: str) -> str:
    """The absolute path of the program. Raises VcudaError: it does not exist."""
    found = os.path.abspath(path)
    if not os.access(found, os.X_OK) or os.path.isdir(found):
        raise VcudaError("is not a program", found, "install vcuda, or name it by --runtime-path")
    return found


def _staging(engine: Any, path: str) -> str:
    # CRI-O reads every file of its folder as configuration, whatever its name.
    folder = os.path.dirname(path)
    return os.path.dirname(folder) if engine is crio else folder


def _lock(record_path: str, dry_run: bool) -> AbstractContextManager[object]:
    """No other process reads or writes a record between reading, deciding and writing."""
    if dry_run:
        return nullcontext()
    folder = os.path.dirname(os.path.dirname(record_path))
    return FolderLock(f"{folder}/configure.lock", _LOCK_SECONDS, 0o755)
