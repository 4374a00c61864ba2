"""Hand the node over from a running agent to the next one, so that a rollout rejects no pod.

A kubelet rejects a pod for good (UnexpectedAdmissionError) while the resource's devices are
unhealthy. It keeps one client for each resource, the newest. When the device stream of any agent
ends, it disconnects that newest client, whichever agent that client belongs to, and marks the
devices unhealthy; if there is no client it does nothing. A registration that fails removes the
client, but neither its stream nor its devices (pkg/kubelet/cm/devicemanager/plugin/v1beta1/
handler.go, 1.25 to 1.36; seen with 1.36). So the next agent

1. registers beside the running one; the kubelet calls the new one from then on,
2. registers a socket without calls, which fails: now the end of the old stream changes nothing,
3. is ready, so that the rollout ends the old agent,
4. takes the old one's place once that has ended, and
5. registers again (registration.py), so that its own end is noticed.

If the next agent ends instead, the old one registers again likewise. A kubelet that restarts on the
way is registered with again by both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

_log = logging.getLogger(__name__)


class Registered(Protocol):
    @property
    def has_successor(self) -> bool: ...

    async def detach(self) -> None: ...


async def run(
    registrations: Sequence[Registered],
    take_place: Callable[[], Awaitable[None]],
    ready: Callable[[], None],
    taken: asyncio.Event,
) -> None:
    """Do the steps above and then nothing, until cancelled.

    take_place: waits for the end of the running agent. Calls `ready` after step 2, and sets `taken`
    after step 4.
    """
    await asyncio.gather(*(each.detach() for each in registrations))
    _log.info("registered beside the running agent, which may end now")
    ready()
    await take_place()
    _log.info("the former agent has ended")
    taken.set()
    await asyncio.Event().wait()
