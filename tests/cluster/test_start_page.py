"""The pod of docs/start-kubernetes.md. The node was made as the page says: node.py."""

from __future__ import annotations

import json
import re

import yaml

from cluster.node import Node
from support.engines.base import IMAGE
from support.files import ROOT
from support.product import MEMORY_UNIT


def test_the_pages_pod_shows_its_share(node: Node) -> None:
    with open(ROOT + "/docs/start-kubernetes.md") as page:
        (text,) = re.findall(r"```yaml\n(.*?)```", page.read(), re.DOTALL)
    pod = yaml.safe_load(text.replace("IMAGE", json.dumps(IMAGE)))
    assert pod["spec"]["containers"][0]["image"] == IMAGE
    node.apply(pod)
    node.wait(lambda: node.phase("train") in ("Succeeded", "Failed"), "the pod's end")
    assert node.phase("train") == "Succeeded", node.kubectl("logs", "train")
    assert f"{20 * MEMORY_UNIT >> 20}MiB" in node.kubectl("logs", "train").replace(" ", "")


def test_charts_own_check_succeeds(node: Node) -> None:
    node.chart.test()
