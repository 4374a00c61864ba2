"""`vcuda why` on the node, of a pod that waits for a GPU."""

from __future__ import annotations

import json

from cluster.kubernetes.node import Node


def test_why_of_a_waiting_pod_says_the_schedulers_reason(node: Node) -> None:
    node.run("first", 70, 4)
    node.run("second", 70, 4)
    for name in ("first", "second"):
        node.wait_running(name)
    node.run("third", 40, 4)
    node.wait(lambda: node.events("third", "FailedScheduling") != [], "the refusal")
    answer = json.loads(node.vcuda("why", "default/third", "--json"))
    assert answer["id"] is None
    last = answer["scheduling"]["events"][-1]
    assert (last["reason"], last["source"]) == ("FailedScheduling", "vcuda-scheduler")
    assert "largest free share is 30" in last["message"]
    (reason,) = answer["reasons"]
    assert reason["kind"] == "pending" and "largest free share is 30" in reason["what"]
    node.run("fourth", 70, 4)
    node.wait(lambda: node.events("fourth", "FailedScheduling") != [], "the refusal")
    (reason,) = json.loads(node.vcuda("why", "default/fourth", "--json"))["reasons"]
    # The sums of the node do not suffice, so the extender was not asked.
    assert (reason["kind"], "Insufficient tencent.com/vcuda-core" in reason["what"]) == (
        "pending",
        True,
    )
