"""Leader election: only the extender that holds a Lease of the API server binds pods.

The holder stops binding HELD_SECONDS after it began its last successful renewal. The others take
the Lease only when LEASE_SECONDS have passed since they saw that renewal. The calls that the old
holder sent have ended by then: `AsyncApi.call` has the API server limit them by its own clock. The
new holder then reads all bindings once, and so knows every binding of the holders before it.

Each process measures with its own monotonic clock, which also runs while the machine sleeps. The
times in a Lease are for people only. The official client's helper compares times of day, so it
cannot be used.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from vcuda_oci.model.errors import VcudaError

from ...kube import agent_lease
from ...kube.api import CALL_SECONDS, ApiError, KubeApi, path_of

HELD_SECONDS = 10.0
# A call takes at most CALL_SECONDS to connect and CALL_SECONDS to be answered.
LEASE_SECONDS = int(HELD_SECONDS + 2 * CALL_SECONDS) + 2
RENEW_SECONDS = 2.0

_log = logging.getLogger(__name__)


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leader:
    """One candidate. where: NAMESPACE/NAME of the Lease. identity: unique to this process."""

    def __init__(
        self,
        api: KubeApi,
        where: str,
        catch_up: Callable[[], None],
        identity: str = "",
        now: Callable[[], float] = clock,
    ) -> None:
        """Raises VcudaError if `where` is malformed.

        catch_up: reads the bindings of other extenders; raises ApiError.
        """
        namespace, _, name = where.partition("/")
        if not namespace or not name or "/" in name:
            raise VcudaError(
                "is not the name of a Lease", f"--lease {where}", "write NAMESPACE/NAME"
            )
        self._api, self._name, self._now, self._catch_up = api, name, now, catch_up
        self._folder = path_of(agent_lease.API, namespace, "leases")
        self._path = path_of(agent_lease.API, namespace, "leases", name)
        self.identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._lock = threading.Lock()  # one step at a time
        self._holder, self._ended = "", False
        # _since: when this process took the Lease. _caught_up: the same, once `catch_up` has run.
        self._since = self._caught_up = self._renewed = float("-inf")
        self._taken = threading.Event()
        self._seen, self._seen_at = "", 0.0

    def why_not(self) -> str:
        """Return why this process may not bind now; "" if it may."""
        now = self._now()
        if now >= self._renewed + HELD_SECONDS:
            holder = (
                self._holder if self._holder not in ("", self.identity) else "an unknown replica"
            )
            return f"standby: the lease {self._name} is held by {holder}"
        if self._caught_up != self._since:
            return f"standby: the lease {self._name} was taken just now; try again in a moment"
        return ""

    def start(self) -> None:
        """Start two daemon threads; the process exits if one of them fails."""

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
        except ApiError as error:
            _log.warning("%s", error)

    def try_settle(self) -> None:
        """After taking the Lease, read the bindings of earlier holders, which no longer bind."""
        since = self._since
        try:
            if since != self._caught_up:
                self._catch_up()
                self._caught_up = since
        except ApiError as error:
            _log.warning("%s", error)

    def step(self) -> None:
        """Take the Lease, renew it, or note its holder. Raises ApiError: no answer."""
        with self._lock:
            if self._ended:
                return
            began = self._now()
            status, lease = self._api.call("GET", self._path)
            if status == 404:
                lease = {"metadata": {"name": self._name}}
            elif status != 200 or not isinstance(lease, dict):
                raise ApiError(0, f"GET {self._path}: {status}")
            spec = lease.get("spec") or {}
            holder = str(spec.get("holderIdentity") or "")
            if holder not in ("", self.identity) and not self._is_over(lease, spec):
                self._lose(holder)
                return
            if self._write(lease, holder, self.identity, new=status == 404):
                if holder != self.identity or self._holder != self.identity:
                    self._since = self._now()
                    self._taken.set()
                    _log.info("%s: held by this extender, %s", self._name, self.identity)
                self._holder, self._renewed = self.identity, began
            else:
                self._lose("another")

    def release(self) -> None:
        """Release the Lease, so that others need not wait. No binding may be in progress."""
        with self._lock:
            self._ended = True
            held, self._renewed = self._holder == self.identity, float("-inf")
            try:
                status, lease = self._api.call("GET", self._path) if held else (404, {})
                if status == 200 and lease["spec"].get("holderIdentity") == self.identity:
                    self._write(lease, self.identity, "", new=False)
            except ApiError as error:
                _log.warning("%s: not released: %s", self._name, error)

    def _is_over(self, lease: Any, spec: Any) -> bool:
        """Return whether the Lease expired: it stayed unchanged for its whole duration."""
        now, version = self._now(), str(lease["metadata"].get("resourceVersion"))
        if version != self._seen:
            self._seen, self._seen_at = version, now
        duration = spec.get("leaseDurationSeconds")
        return now - self._seen_at > max(LEASE_SECONDS, duration if type(duration) is int else 0)

    def _lose(self, holder: str) -> None:
        if self._holder != holder:
            _log.info("%s: held by %s", self._name, holder)
        self._holder, self._renewed = holder, float("-inf")

    def _write(self, lease: Any, before: str, holder: str, *, new: bool) -> bool:
        """Write the Lease for `holder`. Return False if another extender wrote it first."""
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
            raise ApiError(0, f"{method} {path}: {status}")
        return status != 409
