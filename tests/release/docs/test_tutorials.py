"""Manifests of the tutorials: valid, and read by vcuda's programs as the pages say."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import tomllib
import yaml

from contract.chart import rendering
from release.docs.commands import REPOSITORY, blocks
from support.needed import skip_or_fail
from support.scheduler.clusters import SETTINGS
from vcuda_oci.model import policies
from vcuda_plugin.extender.model.pod_request import PodAsk, ask_of

GIB = 1 << 30


def trees(page: str) -> list[Any]:
    """The page's YAML."""
    with open(f"{REPOSITORY}/{page}") as file:
        found = blocks(page, file.read())
    texts = ["\n".join(block.lines) for block in found if block.language == "yaml"]
    return [tree for text in texts for tree in yaml.safe_load_all(text)]


def manifest(page: str, kind: str, name: str) -> Any:
    (found,) = [
        tree
        for tree in trees(page)
        if (tree.get("kind"), tree.get("metadata", {}).get("name")) == (kind, name)
    ]
    return found


def asked(template: Any) -> PodAsk:
    found = ask_of(template, SETTINGS)
    assert found
    return found


def share(ask: PodAsk) -> tuple[int, int]:
    """Percent, and GiB."""
    part = ask.single
    assert part and part.memory_bytes
    return part.core, part.memory_bytes // GIB


@pytest.mark.parametrize(
    ("page", "kind", "name", "wanted", "policy", "latency"),
    [
        ("docs/tutorial-pytorch.md", "Job", "train", (50, 8), "elastic", "normal"),
        ("docs/tutorial-serving.md", "Deployment", "chat", (60, 40), "elastic", "low"),
        ("docs/tutorial-serving.md", "Job", "embed", (10, 20), "best-effort", "normal"),
    ],
)
def test_tutorials_pod_asks_for_the_share_that_its_page_says(
    page: str, kind: str, name: str, wanted: Any, policy: str, latency: str
) -> None:
    tree = manifest(page, kind, name)
    kubernetes_validate.validate(tree, rendering.NEWEST, strict=True)
    ask = asked(tree["spec"]["template"])
    assert share(ask) == wanted
    words = dict(ask.words)
    assert policies.parse(words, ask.core, page).policy == policy
    assert words.get("latency", "normal") == latency


def test_tutorials_two_pods_fit_one_gpu_of_80_gib() -> None:
    page = "docs/tutorial-serving.md"
    pods = [manifest(page, *each) for each in (("Deployment", "chat"), ("Job", "embed"))]
    shares = [share(asked(pod["spec"]["template"])) for pod in pods]
    assert sum(core for core, _ in shares) <= 100
    assert sum(memory for _, memory in shares) <= 80


def test_tutorials_part_of_each_of_two_gpus_is_read_as_that() -> None:
    (tree,) = [tree for tree in trees("docs/tutorial-pytorch.md") if "resources" in tree]
    container = {"name": "train", **tree}
    parts = asked({"metadata": {}, "spec": {"containers": [container]}}).containers[0].parts
    assert [(part.core, part.memory_bytes) for part in parts] == [(50, 8 * GIB)] * 2


def spawned(override: dict[str, Any]) -> dict[str, Any]:
    """The pod that KubeSpawner makes, as far as vcuda reads it.

    Source: kubespawner 7.1, objects.make_pod.
    """
    container = {"name": "notebook", "resources": {"limits": override["extra_resource_limits"]}}
    spec = {"containers": [container], "schedulerName": override["scheduler_name"]}
    return {
        "metadata": {"annotations": override.get("extra_annotations", {})},
        "spec": {**spec, **override["extra_pod_config"]},
    }


def test_notebooks_profiles_ask_for_what_their_names_say() -> None:
    (values,) = trees("docs/tutorial-jupyterhub.md")
    _, *profiles = values["singleuser"]["profileList"]
    quarter, whole = (spawned(profile["kubespawner_override"]) for profile in profiles)
    for pod in (quarter, whole):
        assert pod["spec"]["runtimeClassName"] == "vcuda"
        assert pod["spec"]["schedulerName"] == "vcuda-scheduler"
    ask = asked(quarter)
    assert share(ask) == (25, 10)
    terms = policies.parse(dict(ask.words), ask.core, "page")
    assert (terms.policy, terms.idle_suspend) == ("elastic", 600)
    assert asked(whole).core == 100


CI = "docs/tutorial-ci.md"


def runners(executor: str) -> tuple[int, dict[str, Any]]:
    """GitLab Runner's `concurrent`, and its one runner with this executor."""
    with open(f"{REPOSITORY}/{CI}") as file:
        found = blocks(CI, file.read())
    texts = ["\n".join(block.lines) for block in found if block.language == "toml"]
    for tree in map(tomllib.loads, texts):
        (runner,) = tree["runners"]
        if runner["executor"] == executor:
            return tree.get("concurrent", 1), runner
    raise AssertionError(executor)


def test_both_docker_runners_ask_as_the_pages_tried_command() -> None:
    concurrent, runner = runners("docker")
    (job,) = [tree["jobs"]["test"] for tree in trees(CI) if "jobs" in tree]
    words = [f"-e {each}" for each in runner["environment"]]
    assert words == [f"-e {key}={value}" for key, value in job["container"]["env"].items()]
    runtime = f"--runtime={runner['docker']['runtime']}"
    assert job["container"]["options"] == runtime
    with open(f"{REPOSITORY}/{CI}") as file:
        assert " ".join(["sudo docker run --rm", runtime, *words, "IMAGE"]) in file.read()
    (core,) = [int(each[11:]) for each in runner["environment"] if each.startswith("VCUDA_CORE=")]
    assert core * concurrent == 100


def test_runners_pod_gives_the_share_to_its_jobs_container(tmp_path: Path) -> None:
    """GitLab Runner merges the patch as kubectl does.

    Source: gitlab-runner 19.4, docs/executors/kubernetes, "Overwrite generated pod specifications".
    """
    program = shutil.which("kubectl")
    if program is None:
        skip_or_fail("kubectl is not installed")
    settings = runners("kubernetes")[1]["kubernetes"]
    (patch,) = settings["pod_spec"]
    containers = [{"name": name, "image": "any"} for name in ("build", "helper")]
    spec = {
        "runtimeClassName": settings["runtime_class_name"],
        "schedulerName": settings["scheduler_name"],
        "containers": containers,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, "spec": spec}
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    words = ["patch", "--local", "-o", "json", "--type", patch["patch_type"]]
    words += ["-f", str(tmp_path / "pod.json")]
    words += ["--patch", json.dumps({"spec": yaml.safe_load(patch["patch"])})]
    made = json.loads(subprocess.check_output([program, *words], text=True))
    kubernetes_validate.validate(made, rendering.NEWEST, strict=True)
    assert [len(each.get("resources", {})) for each in made["spec"]["containers"]] == [1, 0]
    assert share(asked(made)) == (25, 3)


def test_kserves_predictor_has_the_fields_of_a_pod_with_the_share() -> None:
    predictor = manifest("docs/tutorial-serving.md", "InferenceService", "chat")["spec"][
        "predictor"
    ]
    container = {"name": "kserve-container", "resources": predictor.pop("model")["resources"]}
    annotations = predictor.pop("annotations")
    spec = {**predictor, "containers": [{**container, "image": "any"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": annotations}}
    kubernetes_validate.validate({**pod, "spec": spec}, rendering.NEWEST, strict=True)
    ask = asked({**pod, "spec": spec})
    assert (share(ask), dict(ask.words)) == ((60, 40), {"latency": "low"})


def test_autoscaler_reads_the_metric_that_the_adapter_makes(tmp_path: Path) -> None:
    page = "docs/tutorial-serving.md"
    scaler = manifest(page, "HorizontalPodAutoscaler", "chat")
    kubernetes_validate.validate(scaler, rendering.NEWEST, strict=True)
    (adapter,) = [tree for tree in trees(page) if "rules" in tree]
    (rule,) = adapter["rules"]
    (metric,) = scaler["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
    query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod")
    query = query.replace("<<.LabelMatchers>>", 'namespace="ml",pod=~"chat-1|chat-2"')
    program = shutil.which("promtool")
    if program is None:
        skip_or_fail("promtool is not installed")
    labels = 'namespace="ml",container="vllm",gpu="GPU-0",allocation="a"'
    series = {
        f'vcuda_container_compute_seconds_total{{pod="chat-1",{labels}}}': "0+18x10",
        f'vcuda_container_compute_seconds_total{{pod="chat-2",{labels}}}': "0+45x10",
        f'vcuda_container_compute_reserved_ratio{{pod="chat-1",{labels}}}': "0.6x10",
        f'vcuda_container_compute_reserved_ratio{{pod="chat-2",{labels}}}': "0.6x10",
    }
    test = {
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": "8m",
                # 18 and 45 s of each minute, of 36 that are reserved.
                "exp_samples": [
                    {"labels": '{pod="chat-1"}', "value": 0.5},
                    {"labels": '{pod="chat-2"}', "value": 1.25},
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(
        yaml.safe_dump({"evaluation_interval": "1m", "tests": [{"interval": "1m", **test}]})
    )
    done = subprocess.run(
        [program, "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
