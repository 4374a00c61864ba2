"""The pods of docs/start-kubernetes.md. The node was made as the page says: node.py."""

from __future__ import annotations

import json
import re

import yaml

from cluster.kubernetes.node import Node
from support.engines.base import IMAGE
from support.files import ROOT
from support.product import MEMORY_UNIT


def test_both_models_of_the_page_share_one_gpu(node: Node) -> None:
    with open(ROOT + "/docs/start-kubernetes.md") as page:
        (text,) = re.findall(r"```yaml\n(.*?)```", page.read(), re.DOTALL)
    models = list(yaml.safe_load_all(text.replace("IMAGE", json.dumps(IMAGE))))
    for model in models:
        assert model["spec"]["containers"][0]["image"] == IMAGE
        node.apply(model)
    for model, units in zip(models, (20, 32)):
        node.wait_running(model["metadata"]["name"])
        shown = node.exec(model["metadata"]["name"], "nvidia-smi").replace(" ", "")
        assert f"{units * MEMORY_UNIT >> 20}MiB" in shown
    gpus = node.gpus_held()
    assert gpus["model-a"] == gpus["model-b"] and len(gpus["model-a"]) == 1


def test_charts_own_check_succeeds(node: Node) -> None:
    node.chart.test()
