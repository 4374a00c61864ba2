"""Event counts since the machine started, read from the event file that programs append to.

The counts and the position in the event file are saved together in the HTTP process's folder, so
that a restarted agent continues where the previous one stopped.
"""

from __future__ import annotations

import contextlib
import os
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

from vcuda_oci.ledger import events
from vcuda_oci.model import jsontree
from vcuda_oci.system import files

# The only folder that the HTTP process may write to.
FOLDER, NAME = "http", "event-counts.json"
OTHER = "other"
_MOST_KINDS = 32
_KIND = re.compile(r"[a-z][a-z-]{0,31}")
# Text in placement's refusals, and the reason that each is counted under.
REASONS = (
    ("unhealthy", "unhealthy"),
    ("is drained", "drained"),
    ("wholly free", "whole-gpus"),
    ("largest free share", "share"),
    ("is left beside the whole ones", "share"),
    ("no GPU '", "unknown-gpu"),
)
# Exported as 0 from the start: Prometheus sees no increase in a series that begins at 1.
KNOWN_REASONS = dict.fromkeys([*(reason for _, reason in REASONS), OTHER], 0)
KNOWN_KINDS = dict.fromkeys(
    [
        events.CLAIMED, events.TAKEN_OVER, events.REFUSED, events.STOPPED, events.RELEASED,
        events.LIMIT_CHANGED, events.DECIDED, events.THROTTLED, events.OUT_OF_MEMORY,
        events.BYPASS_FOUND, events.TURN_OVERRUN, events.AGENT_STARTED, events.AGENT_ENDED,
        events.GPU_UNHEALTHY, events.GPU_HEALTHY, events.NO_GPUS, events.UNCLAIMED,
        events.SUSPENDED, events.RESUMED, events.SUSPEND_FAILED, events.LOST,
        events.GPU_DRAINED, events.GPU_UNDRAINED, events.MPS_ENDED,
    ],
    0,
)  # fmt: skip


class Start(NamedTuple):
    """One container start. seconds: its duration. time: its end, in seconds since 1970."""

    allocation: str
    seconds: float
    time: float


class Counts:
    """Event counts and the histogram of start times.

    kinds: events by kind. reasons: refusals by reason.
    starts: starts per bucket of BOUNDS; the last bucket holds those above every bound.
    start_seconds: sum of all start times. last_starts: the newest start in each bucket, or None if
    this process has not seen one.
    """

    BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.starts = [0] * (len(self.BOUNDS) + 1)
        self.start_seconds = 0.0
        self.last_starts: list[Start | None] = [None for _ in self.starts]

    def add(self, event: dict[str, Any]) -> None:
        kind, text, seconds = event.get("kind"), event.get("text"), event.get("seconds")
        if not (isinstance(kind, str) and _KIND.fullmatch(kind)):
            kind = OTHER
        if kind not in self.kinds and len(self.kinds) >= _MOST_KINDS:
            kind = OTHER
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if kind == events.REFUSED:
            reason = reason_of(str(text))
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if isinstance(seconds, (int, float)) and 0 <= seconds < 1e6:
            bucket = bisect_left(self.BOUNDS, seconds)
            self.starts[bucket] += 1
            self.start_seconds += seconds
            id, at = event.get("allocation"), event.get("time")
            if isinstance(id, str) and isinstance(at, (int, float)):
                self.last_starts[bucket] = Start(id, seconds, at)


def reason_of(text: str) -> str:
    """A refusal's reason, from its text."""
    return next((reason for words, reason in REASONS if words in text), OTHER)


class EventCounts:
    """Counts the events of one state folder and saves the counts."""

    def __init__(self, state_dir: str) -> None:
        self._events = f"{state_dir}/{events.NAME}"
        self._saved_path = f"{state_dir}/{FOLDER}/{NAME}"
        with contextlib.suppress(OSError):
            os.mkdir(os.path.dirname(self._saved_path), 0o700)
        self._file, self._at = 0, 0  # inode of the file being read; bytes of it already counted
        self._counts = self._load()

    def read(self) -> Counts:
        """Count the events appended since the last call; return the totals."""
        changed = False
        for line in self._unread():
            changed = True
            try:
                event = jsontree.loads(line.decode())
            except ValueError:
                continue
            if isinstance(event, dict):
                self._counts.add(event)
        if changed:
            self._save()
        return self._counts

    def _unread(self) -> Iterator[bytes]:
        """Yield the complete lines not counted yet; a partial line waits for the next call."""
        paths = [f"{self._events}.1", self._events]
        inodes = [_inode(path) for path in paths]
        if self._file in inodes:
            paths = paths[inodes.index(self._file) :]
        else:
            self._at = 0  # nothing is read yet, or both files are newer than the one read last
        for path in paths:
            try:
                with open(path, "rb") as file:
                    status = os.fstat(file.fileno())
                    # A file system may reuse the inode number of a removed file.
                    if status.st_ino != self._file or status.st_size < self._at:
                        self._file, self._at = status.st_ino, 0
                    file.seek(self._at)
                    new = file.read(4 * events.MOST_BYTES)
            except OSError:
                continue
            whole = new[: new.rfind(b"\n") + 1]
            self._at += len(whole)
            yield from whole.splitlines()

    def _load(self) -> Counts:
        counts = Counts()
        try:
            saved = jsontree.loads(files.read_ours(self._saved_path, 1 << 20))
            counts.kinds = {str(kind): int(n) for kind, n in saved["kinds"].items()}
            counts.reasons = {str(reason): int(n) for reason, n in saved["reasons"].items()}
            counts.starts = [int(saved["starts"][i]) for i in range(len(counts.starts))]
            counts.start_seconds = float(saved["start_seconds"])
            self._file, self._at = int(saved["file"]), int(saved["at"])
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            return Counts()  # missing or damaged: count again from the oldest event on file
        return counts

    def _save(self) -> None:
        content = {**self._counts.__dict__, "file": self._file, "at": self._at}
        del content["last_starts"]
        # If it fails, counting continues from an older position after a restart.
        with contextlib.suppress(OSError):
            files.replace(self._saved_path, jsontree.dumps(content).encode(), 0o644)


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1
