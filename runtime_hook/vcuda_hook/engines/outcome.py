"""What ``vcuda configure`` changes in one file, and how it is shown."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Outcome:
    """before, after: the file's text; None: no file. left: what undo could not remove, with the
    reason.
    """

    path: str
    before: str | None
    after: str | None
    notes: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    then_run: str = ""

    @property
    def diff(self) -> str:
        old, new = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        made = difflib.unified_diff(old, new, self.path, self.path + " (new)")
        return "".join(line if line.endswith("\n") else line + "\n" for line in made)


def as_json(engine: str, outcome: Outcome, dry_run: bool) -> dict[str, Any]:
    """The object of `--json`."""
    changed = outcome.before != outcome.after
    return {
        "engine": engine,
        "path": outcome.path,
        "changed": changed and not dry_run,
        "diff": outcome.diff,
        "notes": outcome.notes,
        "left": outcome.left,
        "then_run": outcome.then_run if changed else "",
    }


def show(outcome: Outcome, dry_run: bool) -> None:
    """Print the change, the notes and the command to run next."""
    sys.stdout.write(outcome.diff)
    if outcome.before == outcome.after:
        if not outcome.left:
            print(outcome.notes[0] if outcome.notes else f"nothing to change in {outcome.path}")
        return
    if not dry_run:
        print(f"{'removed' if outcome.after is None else 'wrote'} {outcome.path}")
    for note in outcome.notes:
        print(f"note: {note}")
    if outcome.then_run and not dry_run:
        print(f"then run: {outcome.then_run}")


def complain(outcome: Outcome) -> int:
    """Report what undo left; return the exit code."""
    for line in outcome.left:
        sys.stderr.write(f"vcuda: {outcome.path}: {line}\n")
    return 1 if outcome.left else 0
