"""Which of several extenders binds: the one that holds a Lease of the API server.

The holder stops to bind long before another may take the Lease: HELD_SECONDS after it began the
last renewal that it knows of. What it sent then has ended before LEASE_SECONDS have passed, which
the others wait from when they saw that renewal; the API server sees to that by its own clock,
`AsyncApi.call`. So whoever takes the Lease reads what is bound once more, and then knows of every
binding of those before. Each counts by its own clock that only goes forward, also while the machine
sleeps; what time a Lease tells is for people. So the official client's helper does not serve: it
compares times of day.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vcuda_oci.errors import VcudaError

from ..follow.api import CALL_SECONDS, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..follow.api import Api

HELD_SECONDS = 10.0
# A call takes CALL_SECONDS at most to connect, and as long to be answered.
LEASE_SECONDS = int(HELD_SECONDS + 2 * CALL_SECONDS) + 2
RENEW_SECONDS = 2.0

_log = logging.getLogger(__name__)


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leader:
    """where: "NAMESPACE/NAME" of the Lease. identity: of this process, and of none before it."""

    def __init__(
        self,
        api: Api,
        where: str,
        catch_up: Callable[[], None],
        identity: str = "",
        now: Callable[[], float] = clock,
    ) -> None:
        """catch_up: reads what others have bound; raises Unreachable.

        Raises VcudaError: `where` names nothing.
        """
        namespace, _, name = where.partition("/")
        if not namespace or not name or "/" in name:
            raise VcudaError("is no Lease", f"--lease {where}", "write NAMESPACE/NAME")
        self._api, self._name, self._now, self._catch_up = api, name, now, catch_up
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, '')}/leases"
        self._path = f"{self._folder}/{quote(name, '')}"
        self.identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._lock = threading.Lock()  # one step at a time
        self._holder, self._ended = "", False
        # Since when it is held; and the same, once what was bound before has been read.
        self._since = self._caught_up = self._renewed = float("-inf")
        self._taken = threading.Event()
        self._seen, self._seen_at = "", 0.0

    def why_not(self) -> str:
        """Why this process may not bind; "": it may, now."""
        now = self._now()
        if now >= self._renewed + HELD_SECONDS:
            holder = self._holder if self._holder not in ("", self.identity) else "nobody known"
            return f"standby: the lease {self._name} is held by {holder}"
        if self._caught_up != self._since:
            return f"standby: the lease {self._name} was taken just now; try again in a moment"
        return ""

    def start(self) -> None:
        """In threads that end with the process, and the process with them."""

        def renew() -> None:
            self.try_step()
            time.sleep(RENEW_SECONDS)

        def settle() -> None:
            self._taken.wait(RENEW_SECONDS)
            self._taken.clear()
            self.try_settle()

        def run(turn: Callable[[], None]) -> None:
            try:
                while not self._ended:
                    turn()
            except BaseException:
                _log.exception("%s: not renewed any more", self._name)
                os._exit(1)

        for turn in (renew, settle):
            threading.Thread(target=run, args=(turn,), name=self._name, daemon=True).start()

    def try_step(self) -> None:
        try:
            self.step()
        except Unreachable as error:
            _log.warning("%s", error)

    def try_settle(self) -> None:
        """Where the Lease was taken, read what the holders before have bound: they bind no more."""
        since = self._since
        try:
            if since != self._caught_up:
                self._catch_up()
                self._caught_up = since
        except Unreachable as error:
            _log.warning("%s", error)

    def step(self) -> None:
        """Take the Lease, renew it, or see who has it. Raises Unreachable: nobody knows."""
        with self._lock:
            if self._ended:
                return
            began = self._now()
            status, lease = self._api.call("GET", self._path)
            if status == 404:
                lease = {"metadata": {"name": self._name}}
            elif status != 200 or not isinstance(lease, dict):
                raise Unreachable(f"GET {self._path}: {status}")
            spec = lease.get("spec") or {}
            holder = str(spec.get("holderIdentity") or "")
            if holder not in ("", self.identity) and not self._is_over(lease, spec):
                self._lose(holder)
                return
            if self._write(lease, holder, self.identity, status == 404):
                if holder != self.identity or self._holder != self.identity:
                    self._since = self._now()
                    self._taken.set()
                    _log.info("%s: held by this extender, %s", self._name, self.identity)
                self._holder, self._renewed = self.identity, began
            else:
                self._lose("another")

    def release(self) -> None:
        """Nobody waits for it to end. Nothing may be being bound any more."""
        with self._lock:
            self._ended = True
            held, self._renewed = self._holder == self.identity, float("-inf")
            try:
                status, lease = self._api.call("GET", self._path) if held else (404, {})
                if status == 200 and lease["spec"].get("holderIdentity") == self.identity:
                    self._write(lease, self.identity, "", False)
            except Unreachable as error:
                _log.warning("%s: not released: %s", self._name, error)

    def _is_over(self, lease: Any, spec: Any) -> bool:
        """Whether nobody has written the Lease for as long as it is good for."""
        now, version = self._now(), str(lease["metadata"].get("resourceVersion"))
        if version != self._seen:
            self._seen, self._seen_at = version, now
        said = spec.get("leaseDurationSeconds")
        return now - self._seen_at > max(LEASE_SECONDS, said if type(said) is int else 0)

    def _lose(self, holder: str) -> None:
        if self._holder != holder:
            _log.info("%s: held by %s", self._name, holder)
        self._holder, self._renewed = holder, float("-inf")

    def _write(self, lease: Any, before: str, holder: str, new: bool) -> bool:
        """Whether it is written as `holder`'s; False: somebody else was faster."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        spec = dict(lease.get("spec") or {})
        changes = spec.get("leaseTransitions")
        if before != holder:
            spec["leaseTransitions"] = (changes if type(changes) is int else -1) + 1
            spec["acquireTime"] = stamp
        spec |= {"holderIdentity": holder, "renewTime": stamp}
        spec["leaseDurationSeconds"] = LEASE_SECONDS if holder else 1
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        body = {**kind, "metadata": lease["metadata"], "spec": spec}
        method, path = ("POST", self._folder) if new else ("PUT", self._path)
        status, _ = self._api.call(method, path, body)
        if status not in (200, 201, 409):
            raise Unreachable(f"{method} {path}: {status}")
        return status != 409
