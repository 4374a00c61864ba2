"""The page keeper: keep files open so that no process can take a file lease on them.

It holds every container's pages, the driver's and the shim's files that containers see, and the
settings (guest.held_files). It also holds an ended container's page while another process has the
page open. When none has, the page keeper closes its descriptor: if the page's handle then still
opens the page (guest.ended_pages), a process has an O_PATH descriptor of it, and the page keeper
opens it again.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time

from ..guest import ended_pages, held_files, page_file
from ..host import host
from ..ledger.ledger import Ledger
from ..pages import layout
from . import apply_share

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
        self._complete: dict[str, tuple[int, int]] = {}  # stamps of folders with both pages held
        self._read_only: tuple[str, ...] = ()
        self._full_check = float("-inf")

    def run(self, parent: int) -> None:
        """Keep files open until `parent`, the parent process, ends."""
        # Block before any thread starts: the kernel reports changes by this signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
        self._watch_folders()
        pause = _SOON_SECONDS
        while os.getppid() == parent:
            try:
                soon = self.check()
            except OSError:
                soon = True  # out of descriptors or memory; held files stay held
            pause = min(2 * pause, PERIOD_SECONDS) if soon else PERIOD_SECONDS
            if signal.sigtimedwait([signal.SIGIO], pause):
                time.sleep(_SETTLE_SECONDS)
                pause = _SOON_SECONDS

    def check(self) -> bool:
        """Hold the files that exist now; return whether an ended container's page still exists."""
        if time.monotonic() - self._full_check >= PERIOD_SECONDS:
            self._full_check = time.monotonic()
            # Stamps miss a second change within one tick of the kernel's clock.
            self._complete.clear()
            self._hold_read_only()
        folders = self._ledger.folders_of_pages()
        for id, stamp in folders.items():
            if self._complete.get(id) != stamp:
                held = [self._held.hold(path, os.O_RDWR) for path in self._pages_of(id)]
                if all(held):
                    self._complete[id] = stamp
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
        """Cut a page of an ended container; remove its record if no other process has it."""
        page = self._held.descriptor(ended)
        try:
            if page >= 0:
                page_file.restore_open(page, layout.USAGE_SIZE)
                if not ended_pages.is_open_once(page):
                    return False
                self._held.drop(ended)
            if ended_pages.is_removed(ended):
                return True
            self._held.hold(ended, os.O_RDWR)
        except OSError:
            pass  # the next check tries again
        return False

    def _watch_folders(self) -> None:
        """Make the kernel report changes; if it cannot, PERIOD_SECONDS bounds the delay."""
        changes = fcntl.DN_CREATE | fcntl.DN_DELETE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT
        try:
            self._ledger.make_folders()
            for folder in (self._ledger.allocations, self._ledger.ended):
                fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.fcntl(fd, fcntl.F_NOTIFY, changes)  # reports while fd is open
        except OSError:
            pass
