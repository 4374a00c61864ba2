"""The cluster page as docs/cluster-page.md sets it up: the API server judges each viewer."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.kubernetes.control_plane import NODE, Service
from cluster.kubernetes.node import EXTENDER, Node
from support.files import ROOT

TEAM = "team"


def page() -> str:
    with open(ROOT + "/docs/cluster-page.md") as file:
        return file.read()


@contextlib.contextmanager
def serving(started: Node, how: str) -> Iterator[Node]:
    """The page behind kubectl's port-forward, a viewer by the page's roles, and a stranger. how:
    the GPUs are offered.
    """
    cluster = started.cluster
    started.offer(how, scheduler={"page": {"enabled": True}})
    started.wait_rollout(EXTENDER)
    (roles,) = re.findall(r"```yaml\n(apiVersion.*?)```", page(), re.DOTALL)
    started.kubectl("create", "namespace", TEAM)
    for name in ("viewer", "stranger"):
        started.kubectl("create", "serviceaccount", name, "--namespace", TEAM)
    assert cluster.kubectl("create", "-f", "-", stdin=roles).returncode == 0
    (command,) = re.findall(r"kubectl (.*port-forward.*)", page())
    words = [cluster.programs + "/kubectl", "--kubeconfig", cluster.kubeconfig("admin")]
    forward = Service(started.host, "port-forward", *words, *command.split())
    started.wait(lambda: "Forwarding" in forward.log(), "the port-forward")
    yield started
    forward.end(signal.SIGKILL)
    cluster.kubectl("delete", "--wait=false", "-f", "-", stdin=roles)
    started.kubectl("delete", "namespace", TEAM, "--wait=false")
    started.offer("plugin")
    started.wait_rollout(EXTENDER)


@pytest.fixture(scope="module")
def served(started: Node) -> Iterator[Node]:
    with serving(started, "plugin") as node:
        yield node


@pytest.fixture
def shown(served: Node, node: Node) -> Iterator[Node]:
    """A pod with a share and one that waits in the viewer's namespace, and a pod elsewhere."""
    for name, core in (("train", 30), ("waits", 250)):
        pod = node.pod(name, core, 4)
        pod["metadata"]["namespace"] = TEAM
        node.apply(pod)
    node.run("covert", 40, 4)
    node.wait(lambda: set(node.held()) == {"train", "covert"}, "the shares")
    yield node
    node.kubectl("delete", "pods", "--all", "--namespace", TEAM)


def get(node: Node, account: str, namespace: str) -> tuple[int, str]:
    """Status and body of the page's own command, with a token of this account; "": none."""
    (command,) = re.findall(r"curl (.*)", page())
    token = "none"
    if account:
        token = node.kubectl("create", "token", account, "--namespace", TEAM).strip()
    words = command.replace("$TOKEN", token).replace("team", namespace)
    code = ["--silent", "--write-out", "\n%{http_code}"]
    body, _, status = node.host.check(["curl", *shlex.split(words), *code]).rpartition("\n")
    return int(status), body


def test_viewer_of_a_namespace_sees_its_pods_and_the_sum_of_others(shown: Node) -> None:
    def view() -> Any:
        code, body = get(shown, "viewer", TEAM)
        assert code == 200 and "covert" not in body, body
        return json.loads(body)

    def gpus() -> list[Any]:
        return [gpu for each in view()["nodes"] for gpu in each["gpus"]]

    shown.wait(lambda: [each["pod"] for each in view()["waiting"]] == ["waits"], "the waiting pod")
    (waiting,) = view()["waiting"]
    (reason,) = waiting["why"]
    assert (reason["never"], reason["names"]) == (True, [NODE]), waiting
    shares = [share for gpu in gpus() for share in gpu["shares"]]
    assert [(share["pod"], share["core_percent"]) for share in shares] == [("train", 30)]
    assert sum(gpu["others"]["core_percent"] for gpu in gpus() if gpu.get("others")) == 40


def test_token_without_the_right_is_refused_by_the_api_servers_word(shown: Node) -> None:
    for account, namespace, code in (
        ("stranger", TEAM, 403),
        ("viewer", "default", 403),
        ("viewer", "", 403),
        ("", TEAM, 401),
    ):
        got, body = get(shown, account, namespace)
        assert got == code, (account, namespace, body)
        assert not re.search("train|waits|covert", body)


def test_viewer_without_the_right_any_more_is_refused_within_ten_seconds(shown: Node) -> None:
    words = ("rolebinding", "gpu-page", "--namespace", TEAM)
    binding = shown.get(*words)
    del binding["metadata"]["resourceVersion"]
    assert get(shown, "viewer", TEAM)[0] == 200
    shown.kubectl("delete", *words)
    try:
        time.sleep(10)
        assert get(shown, "viewer", TEAM)[0] == 403
    finally:
        shown.apply(binding)
