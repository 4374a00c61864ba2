"""How often what happened, since the machine started: counted from the events that programs append.

What is counted, and up to where the file is read, is kept beside it: an agent that starts anew goes
on where the last one was.
"""

from __future__ import annotations

import contextlib
import os
import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from vcuda_oci import events, files, jsontree

if TYPE_CHECKING:
    from collections.abc import Iterator

# The folder is the HTTP process's own: it writes nothing else.
FOLDER, NAME = "http", "event-counts.json"
OTHER = "other"
_MOST_WORDS = 32
_WORD = re.compile(r"[a-z][a-z-]{0,31}")
# Words of placement's refusals, and what they are counted as.
REASONS = (
    ("unhealthy", "unhealthy"),
    ("wholly free", "whole-gpus"),
    ("largest free share", "share"),
    ("is left beside the whole ones", "share"),
    ("no GPU '", "unknown-gpu"),
)
# Counted from the start, from 0: of a series that begins with its first 1, nobody sees it grow.
KNOWN_REASONS = dict.fromkeys([*(reason for _, reason in REASONS), OTHER], 0)
KNOWN_KINDS = dict.fromkeys(
    [
        *(events.CLAIMED, events.TAKEN_OVER, events.REFUSED, events.STOPPED, events.RELEASED),
        *(events.LIMIT_CHANGED, events.DECIDED, events.THROTTLED, events.OUT_OF_MEMORY),
        *(events.BYPASS_FOUND, events.AGENT_STARTED, events.AGENT_ENDED),
        *(events.GPU_UNHEALTHY, events.GPU_HEALTHY, events.NO_GPUS, events.UNCLAIMED),
    ],
    0,
)


class Start(NamedTuple):
    """One allocation's. time: when, in seconds since 1970."""

    allocation: str
    seconds: float
    time: float


class Counts:
    """kinds, reasons: events and refusals by what they are. starts: by the bound that each was
    within; the last is of those above all. start_seconds: their sum. last_starts: of each bound the
    last, if this agent saw it."""

    BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.bypasses = 0
        self.starts = [0] * (len(self.BOUNDS) + 1)
        self.start_seconds = 0.0
        self.last_starts: list[Start | None] = [None for _ in self.starts]

    def add(self, event: dict[str, Any]) -> None:
        kind, text, seconds = event.get("kind"), event.get("text"), event.get("seconds")
        if not (isinstance(kind, str) and _WORD.fullmatch(kind)):
            kind = OTHER
        if kind not in self.kinds and len(self.kinds) >= _MOST_WORDS:
            kind = OTHER
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if kind == events.REFUSED:
            reason = _bounded(reason_of(event.get("reason"), str(text)), self.reasons)
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.bypasses += kind == events.BYPASS_FOUND
        if isinstance(seconds, (int, float)) and 0 <= seconds < 1e6:
            bucket = bisect_left(self.BOUNDS, seconds)
            self.starts[bucket] += 1
            self.start_seconds += seconds
            id, at = event.get("allocation"), event.get("time")
            if isinstance(id, str) and isinstance(at, (int, float)):
                self.last_starts[bucket] = Start(id, seconds, at)


def reason_of(word: object, text: str) -> str:
    """What the program said itself, or what its words are known to mean."""
    if isinstance(word, str) and _WORD.fullmatch(word):
        return word
    return next((reason for words, reason in REASONS if words in text), OTHER)


def _bounded(word: str, known: dict[str, int]) -> str:
    return word if word in known or len(known) < _MOST_WORDS else OTHER


class EventCounts:
    """Follows the events of one state folder."""

    def __init__(self, state_dir: str) -> None:
        self._events, self._kept = f"{state_dir}/{events.NAME}", f"{state_dir}/{FOLDER}/{NAME}"
        with contextlib.suppress(OSError):
            os.mkdir(os.path.dirname(self._kept), 0o700)
        self._file, self._at = 0, 0  # the inode that is read, and up to which byte
        self._counts = self._load()

    def read(self) -> Counts:
        """The counts up to now."""
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
            self._keep()
        return self._counts

    def _unread(self) -> Iterator[bytes]:
        """Whole lines only: the rest of one is there with the next look."""
        paths = [f"{self._events}.1", self._events]
        inodes = [_inode(path) for path in paths]
        if self._file in inodes:
            paths = paths[inodes.index(self._file) :]
        else:
            self._at = 0  # nothing was read, or both are newer
        for path in paths:
            try:
                with open(path, "rb") as file:
                    status = os.fstat(file.fileno())
                    # A file system may give a new file the number of one that is gone.
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
            files.only_ours(self._kept)
            kept = jsontree.loads(files.read(self._kept, 1 << 20).decode())
            counts.kinds = {str(kind): int(n) for kind, n in kept["kinds"].items()}
            counts.reasons = {str(reason): int(n) for reason, n in kept["reasons"].items()}
            counts.bypasses = int(kept["bypasses"])
            counts.starts = [int(kept["starts"][i]) for i in range(len(counts.starts))]
            counts.start_seconds = float(kept["start_seconds"])
            self._file, self._at = int(kept["file"]), int(kept["at"])
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            return Counts()  # none, or not whole: from the beginning of what there is
        return counts

    def _keep(self) -> None:
        content = {**self._counts.__dict__, "file": self._file, "at": self._at}
        del content["last_starts"]
        try:
            files.replace(self._kept, jsontree.dumps(content).encode(), 0o644)
        except OSError:
            pass  # counted on from an older place, should we start anew


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1
