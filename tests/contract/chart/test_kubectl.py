"""Apply the plain manifests and the pages' commands with kubectl."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from contract.chart.fake_cluster import FakeCluster
from contract.chart.object_store import Object
from contract.chart.rendering import AGENT, EXTENDER, REPOSITORY
from contract.chart.test_plain_manifests import FOLDER, contents
from release.docs.commands import of_page, pages
from support.needed import skip_or_fail


class Kubectl:
    def __init__(self, store: FakeCluster, server: str, home: Path) -> None:
        self.store = store
        self._words = ["kubectl", f"--server={server}", f"--cache-dir={home}"]
        self._env = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def __call__(self, *words: str) -> list[str]:
        """Its lines, sorted."""
        return sorted(self.text(*words))

    def text(self, *words: str) -> list[str]:
        done = subprocess.run(
            [*self._words, *words], capture_output=True, text=True, check=False, env=self._env
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    if not shutil.which("kubectl"):
        skip_or_fail("kubectl is missing; run 'make prepare'")
    store = FakeCluster()
    with store.listening() as server:
        yield Kubectl(store, server, tmp_path)


def typed(verb: str) -> list[list[str]]:
    """The documentation's commands with that verb, verbatim."""
    lines = {command.text: None for page in pages() for command in of_page(page)}
    found = [line for line in lines if line.startswith(f"kubectl {verb} ")]
    return [shlex.split(line.replace("NODE", "node-1"))[1:] for line in found if "|" not in line]


def named() -> list[str]:
    """Each object of the manifests as kubectl calls it: kind.group/name."""
    found = []
    for text in contents(FOLDER).values():
        for each in filter(None, yaml.safe_load_all(text)):
            group = each["apiVersion"].rpartition("/")[0]
            kind = each["kind"].lower() + (f".{group}" if group else "")
            found.append(f"{kind}/{each['metadata']['name']}")
    return found


def test_a_dry_run_takes_every_object_and_changes_nothing(kubectl: Kubectl) -> None:
    printed = kubectl("apply", "--dry-run=client", "-k", FOLDER)
    assert printed == sorted(f"{name} created (dry run)" for name in named())
    assert kubectl.store.changes == []


def test_applied_objects_exist_until_deleted(kubectl: Kubectl) -> None:
    before = dict(kubectl.store.objects)
    assert kubectl("apply", "-k", FOLDER) == sorted(f"{name} created" for name in named())
    pods = [path for path in kubectl.store.objects if "/vcuda/pods/" in path]
    assert len(kubectl.store.objects) == len(before) + len(named()) + len(pods)
    again = kubectl("apply", "-k", FOLDER)
    assert again == sorted(f"{name} unchanged" for name in named())
    kubectl("delete", "--ignore-not-found", "-k", FOLDER)  # what went with its namespace
    assert kubectl.store.objects == before


def test_the_pages_overlay_names_the_images_of_every_container(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    with open(REPOSITORY + "/docs/kubernetes.md") as file:
        (overlay,) = re.findall(
            r"```yaml\n# gpu/kustomization.yaml\n(.*?)```", file.read(), re.DOTALL
        )
    shutil.copytree(FOLDER, tmp_path / "packaging/kubernetes")
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu/kustomization.yaml").write_text(overlay)
    made = list(yaml.safe_load_all("\n".join(kubectl.text("kustomize", f"{tmp_path}/gpu"))))
    pods = [each["spec"]["template"]["spec"] for each in made if "template" in each.get("spec", {})]
    images = [
        c["image"] for pod in pods for c in (*pod["containers"], *pod.get("initContainers", ()))
    ]
    assert sorted(images) == [
        f"REGISTRY/{AGENT}:0.1.0",
        *[f"REGISTRY/{EXTENDER}:0.1.0"] * 2,
        "registry.k8s.io/kube-scheduler:v1.36.2",
    ]


def test_the_pages_commands_mark_and_unmark_a_node(kubectl: Kubectl) -> None:
    def words_of(name: str) -> dict[str, str]:
        metadata = kubectl.store.objects[f"/api/v1/nodes/{name}"]["metadata"]
        return {**metadata.get("labels", {}), **metadata.get("annotations", {})}

    words = [*typed("label"), *typed("annotate")]
    for each in sorted(words, key=lambda each: any(word.endswith("-") for word in each)):
        _, _, name, *marks = each
        kubectl(*each)
        for mark in marks:
            key, equals, value = mark.partition("=")
            command = words_of(name)
            assert command[key] == value if equals else key.removesuffix("-") not in command
    assert len(words) >= 6
    for verb, is_off in (("cordon", True), ("uncordon", None)):
        (each,) = typed(verb)
        kubectl(*each)
        assert kubectl.store.objects["/api/v1/nodes/node-1"]["spec"].get("unschedulable") == is_off


def pods_of(store: FakeCluster, node: str) -> set[str]:
    found = [each for each in store.objects.values() if each["kind"] == "Pod"]
    return {each["metadata"]["name"] for each in found if each["spec"].get("nodeName") == node}


def test_the_pages_drain_leaves_a_node_to_its_daemons(kubectl: Kubectl) -> None:
    kubectl("label", "node", "node-1", "nvidia-device-enable=enable")
    kubectl("apply", "-k", FOLDER)
    daemons = {"network-node-1", f"{AGENT}-node-1"}
    assert pods_of(kubectl.store, "node-1") == {*daemons, "shop-node-1", f"{EXTENDER}-node-1"}
    elsewhere = pods_of(kubectl.store, "foo")
    (words,) = typed("drain")
    kubectl(*words)
    assert pods_of(kubectl.store, "node-1") == daemons
    assert pods_of(kubectl.store, "foo") == elsewhere
    assert kubectl.store.objects["/api/v1/nodes/node-1"]["spec"]["unschedulable"] is True


def test_a_field_that_kubernetes_does_not_know_is_refused_by_the_server(kubectl: Kubectl) -> None:
    made: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd"}}
    made["spec"] = {"containers": [{"name": "main", "image": "example", "imagine": 1}]}
    code, answer = kubectl.store.answer(
        "POST", "/api/v1/namespaces/default/pods", json.dumps(made).encode()
    )
    assert (code, "imagine" in answer["message"]) == (400, True)


def test_the_pages_quota_is_the_config_map_that_the_extender_reads(kubectl: Kubectl) -> None:
    (words,) = typed("-n kube-system create configmap")
    kubectl(*words)
    key = "/api/v1/namespaces/kube-system/configmaps/gpuquota"
    quota = kubectl.store.objects[key]["data"]["gpu_quota"]
    assert json.loads(quota) == {"team": {"quota": {"M40": 8, "P100": 0.5}, "pool": ["public"]}}
