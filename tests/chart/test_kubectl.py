"""The plain manifests, by kubectl itself."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from chart.object_store import ObjectStore
from chart.test_plain_manifests import FOLDER, contents
from docs.table import NOT_HERE
from needed import cannot


class Kubectl:
    def __init__(self, store: ObjectStore, server: str, home: Path) -> None:
        self.store = store
        self._words = ["kubectl", f"--server={server}", f"--cache-dir={home}"]
        self._env = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def __call__(self, *words: str) -> list[str]:
        """Its lines, in order."""
        done = subprocess.run(
            [*self._words, *words], capture_output=True, text=True, check=False, env=self._env
        )
        assert done.returncode == 0, done.stderr
        return sorted(done.stdout.splitlines())


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    if not shutil.which("kubectl"):
        cannot("kubectl is missing; run 'make prepare'")
    store = ObjectStore()
    with store.listening() as server:
        yield Kubectl(store, server, tmp_path)


def typed(verb: str) -> list[list[str]]:
    """The commands of that verb on the documentation's pages, as they stand there."""
    return [shlex.split(line)[1:] for line in NOT_HERE if line.startswith(f"kubectl {verb} ")]


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
    told = kubectl("apply", "--dry-run=client", "--validate=false", "-f", FOLDER)
    assert told == sorted(f"{name} created (dry run)" for name in named())
    assert kubectl.store.changes == []


def test_what_is_applied_is_there_and_goes_with_its_deletion(kubectl: Kubectl) -> None:
    assert kubectl("apply", "--validate=false", "-f", FOLDER) == sorted(
        f"{name} created" for name in named()
    )
    assert len(kubectl.store.objects) == len(named())
    again = kubectl("apply", "--validate=false", "-f", FOLDER)
    assert again == sorted(f"{name} unchanged" for name in named())
    kubectl("delete", "--wait=false", "-f", FOLDER)
    assert kubectl.store.objects == {}


def test_the_pages_commands_mark_a_node_and_take_the_mark_away(kubectl: Kubectl) -> None:
    def words_of(name: str) -> dict[str, str]:
        metadata = kubectl.store.objects[f"/api/v1/nodes/{name}"]["metadata"]
        return {**metadata.get("labels", {}), **metadata.get("annotations", {})}

    for name in ("NODE", "foo"):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        kubectl.store.objects[f"/api/v1/nodes/{name}"] = node
    words = [*typed("label"), *typed("annotate")]
    for each in sorted(words, key=lambda each: any(word.endswith("-") for word in each)):
        _, _, name, *marks = each
        kubectl(*each)
        for mark in marks:
            key, equals, value = mark.partition("=")
            said = words_of(name)
            assert said[key] == value if equals else key.removesuffix("-") not in said
    assert len(words) >= 6
    for verb, is_off in (("cordon", True), ("uncordon", None)):
        (each,) = typed(verb)
        kubectl(*each)
        assert kubectl.store.objects["/api/v1/nodes/NODE"]["spec"].get("unschedulable") == is_off


def test_the_pages_quota_is_the_config_map_that_the_extender_reads(kubectl: Kubectl) -> None:
    (words,) = typed("-n kube-system create configmap")
    (quota,) = kubectl(*words, "--dry-run=client", "-o=jsonpath={.data.gpu_quota}")
    assert json.loads(quota) == {"team": {"quota": {"M40": 8, "P100": 0.5}, "pool": ["public"]}}
