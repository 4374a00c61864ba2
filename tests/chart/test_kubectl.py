"""The plain manifests, by kubectl itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from chart.object_store import ObjectStore
from chart.test_plain_manifests import FOLDER, contents
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
