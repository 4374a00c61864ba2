"""Keeps every container's pages open, the files of the driver and the shim that containers see, and
the settings.

So no process can take a file lease on one of them (guest.held_files). Pages of ended containers
stay open too while another process has them open. Then the page keeper closes its descriptor, which
shows whether a process has the page by an O_PATH descriptor (guest.ended_pages), and opens it again
if so.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time

from ..guest import ended_pages, held_files, page_file, process
from ..host import host
from ..ledger.ledger import Ledger
from ..pages import layout
from . import apply_share

NAME = "page_keeper"
# Time between two checks while the kernel reports no change.
PERIOD_SECONDS = 5.0
# First pause before a page that another process also has is checked again; it doubles each time.
_SOON_SECONDS = 0.05
# A claim changes a folder several times: wait for the rest of its changes.
_SETTLE_SECONDS = 0.005


class PageKeeper:
    def __init__(self, state_dir: str, settings: str) -> None:
        """settings: the path of config.toml."""
        self._settings = settings
        self._ledger = Ledger(state_dir)
        self._cache = state_dir + "/host.json"
        self._held = held_files.HeldFiles()
        self._whole: dict[str, tuple[int, int]] = {}  # by id: folder with both pages held
        self._read_only: tuple[str, ...] = ()
        self._full_look = float("-inf")

    def keep(self, parent: int) -> None:
        """Keep files open until `parent`, the parent process, ends."""
        # Blocked before any thread starts: the kernel reports changes by this signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
        process.be_called(NAME)
        self._watch_folders()
        pause = _SOON_SECONDS
        while os.getppid() == parent:
            try:
                soon = self.look()
            except OSError:
                soon = True  # no descriptor or no memory is free; what is held stays held
            pause = min(2 * pause, PERIOD_SECONDS) if soon else PERIOD_SECONDS
            if signal.sigtimedwait([signal.SIGIO], pause):
                time.sleep(_SETTLE_SECONDS)
                pause = _SOON_SECONDS

    def look(self) -> bool:
        """Hold the files that exist now. Return whether a page of an ended container is left."""
        if time.monotonic() - self._full_look >= PERIOD_SECONDS:
            self._full_look = time.monotonic()
            # Two changes within one tick of the kernel's clock leave a folder the same time.
            self._whole.clear()
            self._hold_read_only()
        folders = self._ledger.folders_of_pages()
        for id, stamp in folders.items():
            if self._whole.get(id) != stamp:
                held = [self._held.hold(path, os.O_RDWR) for path in self._pages_of(id)]
                if all(held):
                    self._whole[id] = stamp
        ended = ended_pages.records(self._ledger.ended)
        for path in ended:
            self._held.hold(path, os.O_RDWR)
        known = {path for id in folders for path in self._pages_of(id)}
        for path in set(self._held.paths()).difference(known, ended, self._read_only):
            self._held.drop(path)
        left = [path for path in ended if not self._is_removed(path)]
        return bool(left)

    def _pages_of(self, id: str) -> tuple[str, str]:
        folder = f"{self._ledger.containers}/{id}"
        return folder + "/limits", folder + "/usage"

    def _hold_read_only(self) -> None:
        libraries = (*host.seen_by_containers(self._cache), *apply_share.shims())
        self._read_only = (*libraries, os.path.realpath(self._settings))
        for path in self._read_only:
            self._held.hold(path, os.O_RDONLY)

    def _is_removed(self, ended: str) -> bool:
        """Cut a page of an ended container, and forget it if no other process has it."""
        page = self._held.descriptor(ended)
        try:
            if page >= 0:
                page_file.put_back_open(page, layout.USAGE_SIZE)
                if not ended_pages.is_open_once(page):
                    return False
                self._held.drop(ended)
            if ended_pages.is_removed(ended):
                return True
            self._held.hold(ended, os.O_RDWR)
        except OSError:
            pass  # the next look tries again
        return False

    def _watch_folders(self) -> None:
        """Have the kernel report changes; where it cannot, PERIOD_SECONDS bounds the delay."""
        changes = fcntl.DN_CREATE | fcntl.DN_DELETE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT
        try:
            self._ledger.make_folders()
            for folder in (self._ledger.allocations, self._ledger.ended):
                fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.fcntl(fd, fcntl.F_NOTIFY, changes)  # reports while fd is open
        except OSError:
            pass
