"""The API server is away for a minute."""

from __future__ import annotations

import signal
import time

from cluster.kubernetes.node import Node
from support.product import MEMORY_UNIT
from support.waiting import until

AWAY_SECONDS = 60.0
# From the API server's return to the binding of a pod.
BOUND_SECONDS = 10.0


def test_pods_are_bound_soon_after_the_api_server_is_back(node: Node) -> None:
    node.run("first", 60, 4)
    node.wait_running("first")
    node.cluster.api.end(signal.SIGKILL)
    time.sleep(AWAY_SECONDS)
    node.cluster.api.start()
    until(node.cluster.serves, "the API server", 60)
    back = time.monotonic()
    for name in ("second", "third"):
        node.run(name, 60 if name == "second" else 40, 4)
    node.wait(lambda: all(node.bound(name) for name in ("second", "third")), "the bindings")
    assert time.monotonic() - back < BOUND_SECONDS
    for name in ("second", "third"):
        node.wait_running(name)
    decided = {name: node.decided(name) for name in ("first", "second", "third")}
    # Each has the GPU that was decided for it, and no GPU has too much.
    assert node.gpus_held() == decided
    assert node.held()["first"] == (60, 4 * MEMORY_UNIT)
    # The watches of running ones pause for a minute more, and the next test's rollout with them.
    node.cluster.controllers.end(signal.SIGKILL)
    node.cluster.controllers.start()
