"""The plain manifests equal the rendered chart."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import kubernetes_validate
import yaml

from contract.chart import rendering
from contract.chart.rendering import REPOSITORY

FOLDER = REPOSITORY + "/packaging/kubernetes"


def contents(folder: str) -> dict[str, str]:
    """The files that Kustomize reads, by name."""
    found = {}
    for name in sorted({*os.listdir(folder)} - {"kustomization.yaml"}):
        with open(f"{folder}/{name}") as file:
            found[name] = file.read()
    return found


def test_make_manifests_would_change_nothing(tmp_path: Path) -> None:
    subprocess.run([REPOSITORY + "/packaging/manifests", tmp_path], check=True)
    tracked = contents(FOLDER)
    namespace = yaml.safe_load(tracked.pop("namespace.yaml"))
    kubernetes_validate.validate(namespace, rendering.NEWEST, strict=True)
    assert tracked == contents(str(tmp_path))


def test_they_hold_every_object_of_the_chart_and_no_other() -> None:
    texts = contents(FOLDER)
    del texts["namespace.yaml"]
    found = [each for text in texts.values() for each in yaml.safe_load_all(text) if each]
    key = repr
    # The ConfigMap is edited by hand.
    whole = rendering.objects({"agent": {"awaitSettings": False}})
    # The chart's other objects are for 1.36 and later only.
    wanted = [each for each in whole if not each["kind"].startswith("Mutating")]
    assert sorted(found, key=key) == sorted(wanted, key=key)
