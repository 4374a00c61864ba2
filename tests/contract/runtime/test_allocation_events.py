"""The events that the programs record in an allocation's life."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.files import write
from support.gpu.driver_root import DriverRoot
from support.ledger.samples import GIB, record
from support.wrapper.installed_wrapper import Installed
from support.wrapper.wrapper_node import CONTAINERD, Node, asking
from vcuda_hook.cli import main
from vcuda_oci.ledger import events
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.pages import limits
from vcuda_plugin.agent.http.event_counts import EventCounts

WRAPPER, HOOK = "vcuda-container-runtime", "vcuda-container-hook"
HALF = "50 % and 4.0 GiB of GPU-0, fixed"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed.counting_python_starts(str(tmp_path_factory.mktemp("prefix")))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> DriverRoot:
    return DriverRoot(tmp_path_factory.mktemp("driver"), count=2)


@pytest.fixture(params=["by python", "by the claim socket"])
def node(
    request: pytest.FixtureRequest, installed: Installed, driver: DriverRoot, tmp_path: Any
) -> Iterator[Node]:
    made = Node(installed, driver, tmp_path)
    if request.param == "by python":
        yield made
        return
    with installed.claim_server():
        yield made


def events_of(state_dir: str, allocation: str = "") -> list[tuple[str, str, str]]:
    found = events.read(state_dir, allocation)
    return [(event["from"], event["kind"], event["text"]) for event in found]


def poststop(node: Node, id: str, *allocation: str, **annotations: str) -> None:
    state = {"id": id, "status": "stopped", "annotations": annotations}
    words = [node.installed.hook, "--config", node.installed.settings, "poststop", *allocation]
    subprocess.run(words, input=json.dumps(state), text=True, check=True)


def test_each_step_of_a_containers_life_is_one_event(node: Node) -> None:
    assert node.create(asking()) == (0, "")
    poststop(node, "box", "box")
    poststop(node, "box", "box")
    assert events_of(node.ledger.state_dir, "box") == [
        (WRAPPER, "claimed", HALF),
        (HOOK, "released", "its container has stopped"),
    ]


def test_the_time_to_give_a_share_is_reported_and_counted(node: Node) -> None:
    spec = asking({**CONTAINERD, "vcuda.io/core": "50", "vcuda.io/memory": "4GiB"})
    began = time.monotonic()
    for id in ("c1", "c2"):
        assert node.create(spec, id=id) == (0, "")
        poststop(node, id, "pod-uid1.main")
    both = time.monotonic() - began
    seconds = {
        e["kind"]: e["seconds"] for e in events.read(node.ledger.state_dir) if "seconds" in e
    }
    assert seconds.keys() == {"claimed", "taken-over"}
    assert all(0 < took < both for took in seconds.values())
    counts = EventCounts(node.ledger.state_dir).read()
    assert (sum(counts.starts), counts.start_seconds) == (2, sum(seconds.values()))


def test_the_next_instance_of_a_pods_container_takes_over_and_is_swept(
    node: Node,
) -> None:
    spec = asking({**CONTAINERD, "vcuda.io/core": "50", "vcuda.io/memory": "4GiB"})
    for id in ("c1", "c2"):
        assert node.create(spec, id=id) == (0, "")
        poststop(node, id, "pod-uid1.main")
    with node.ledger:
        node.ledger.sweep(lambda _: False)
    assert events_of(node.ledger.state_dir, "pod-uid1.main") == [
        (WRAPPER, "claimed", HALF),
        (HOOK, "stopped", "its pod keeps the share"),
        (WRAPPER, "taken-over", HALF),
        (HOOK, "stopped", "its pod keeps the share"),
        ("vcuda", "released", "swept: its container has ended"),
    ]
    about = [(event["container"], event["pod"]) for event in events.read(node.ledger.state_dir)]
    assert about == [(id, "team/web/main") for id in ("c1", "c1", "c2", "c2", "c2")]


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize(
    ("identity", "allocation", "pod"),
    [({}, "box", None), (CONTAINERD, "pod-uid1.main", "team/web/main")],
    ids=["a container", "a pod's container"],
)
def test_a_refusal_event_has_its_reason_and_the_log_its_id(
    node: Node, log_format: str, identity: dict[str, str], allocation: str, pod: str | None
) -> None:
    log = node.folder + "/log"
    spec = asking({**identity, "vcuda.io/core": "50", "vcuda.io/memory": "99GiB"})
    status, line = node.create(spec, "--log", log, "--log-format", log_format)
    assert status == 1
    assert re.fullmatch(rf"{WRAPPER}: placement: largest free share is .*\n", line)
    [event] = events.read(node.ledger.state_dir)
    assert (event["kind"], event["allocation"], event["from"]) == ("refused", allocation, WRAPPER)
    assert (event["container"], event.get("pod")) == ("box", pod)
    assert line == f"{WRAPPER}: {event['text']} (allocation {allocation})\n"
    with open(log) as file:
        (entry,) = file
    if log_format == "json":
        fields = json.loads(entry)
        assert (fields["msg"] + "\n", fields["allocation"]) == (line, allocation)
    else:
        assert entry.endswith(f' allocation="{allocation}"\n')


def test_a_failure_after_the_claim_is_reported_as_refused(node: Node) -> None:
    spec = asking(asking()["annotations"], "NVIDIA_REQUIRE_CUDA=cuda>=99")
    assert node.create(spec)[0] == 1
    os.chmod(node.config, 0o640)
    assert [kind for _, kind, _ in events_of(node.ledger.state_dir)] == ["refused"]


def test_changes_by_hand_are_events(tmp_path: Any) -> None:
    ledger = Ledger(f"{tmp_path}/state")
    config = write(f"{tmp_path}/config.toml", f'state-dir = "{tmp_path}/state"\n')
    for id in ("box", "dead"):
        allocation = record(id, shares=[GpuShare("GPU-0", GIB, 30)])
        with ledger:
            ledger.write(allocation, limits.page_of(allocation))
    write(f"{ledger.allocations}/odd.json", "{")
    assert main.main(["--config", config, "release", "box", "odd", "--force"]) == 0
    assert main.main(["--config", config, "release", "--all-dead"]) == 0
    assert [(e["allocation"], e["kind"], e["text"]) for e in events.read(ledger.state_dir)] == [
        ("box", "released", "released by hand, by force"),
        ("odd", "released", "released by hand, by force; it was broken"),
        ("dead", "released", "swept: its container has ended"),
    ]
