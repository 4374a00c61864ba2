"""The chart's values: their effects, and invalid ones refused before the install."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract.chart import rendering
from contract.chart.rendering import AGENT, EXTENDER, HAMI
from vcuda_oci.model import names
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.http import listen_address

TEXTS = ['a "quoted" \\ <text> & more', "naïve", ""]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"agnet": {}}, "(root): Additional property agnet is not allowed"),
        ({"agent": {"image": {"tags": "1"}}}, "agent.image: Additional property tags is not"),
        ({"agent": {"listen": "127.0.0.1:5678"}}, "agent.listen: Does not match pattern"),
        ({"agent": {"runtimeRoots": []}}, "agent.runtimeRoots: Array must have at least 1 items"),
        ({"agent": {"driverRoot": "run/x"}}, "agent.driverRoot: Does not match pattern"),
        ({"settings": {"driver-root": "/"}}, "settings.driver-root: False always fails"),
        ({"settings": {"listen": ""}}, "settings.listen: False always fails"),
        ({"settings": {"memory-overcommit": 2}}, "settings.memory-overcommit: Invalid type"),
        ({"settings": {"core-resource": "core"}}, "settings.core-resource: Does not match"),
        ({"scheduler": {"mode": "cluster"}}, "scheduler.tlsSecret: String length must be"),
        (
            {"scheduler": {"mode": "cluster", "tlsSecret": "x", "replicas": 2}},
            "scheduler.replicas: scheduler.replicas does not match: 1",
        ),
        ({"scheduler": {"mode": "mine"}}, "scheduler.mode: scheduler.mode must be one of"),
        ({"registry": "here/"}, "registry: Does not match pattern"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(values: Any, said: str) -> None:
    assert said in rendering.refusal(values)


def settings(values: dict[str, Any]) -> settings_file.Config:
    """As a program reads them."""
    data = rendering.one(rendering.objects(values), "ConfigMap", "vcuda")["data"]
    return settings_file.parse(data["config.toml"], "config.toml")


@pytest.mark.parametrize("text", TEXTS)
def test_settings_reach_the_programs_as_they_were_written(text: str) -> None:
    mounts = [f"/a{text}:/b", "/c:/d"]
    found = settings({"settings": {"extra-mounts": mounts, "placement": "spread"}})
    assert found.extra_mounts == [mount.split(":") for mount in mounts]
    assert (found.placement, found.driver_root) == ("spread", "/host")
    assert (found.core_resource, found.gpu_resource) == ("tencent.com/vcuda-core", "")


def test_the_agent_waits_for_the_digest_of_its_settings() -> None:
    found = rendering.objects({"settings": {"placement": "spread"}})
    (config,) = (
        each for each in found if each["kind"] == "ConfigMap" and "config.toml" in each["data"]
    )
    digest = hashlib.sha256(config["data"]["config.toml"].strip().encode()).hexdigest()
    (container,) = rendering.pod_spec(found, AGENT)["containers"]
    words = container["command"]
    assert digest.startswith(words[words.index("--config-digest") + 1])


def test_the_agent_listens_and_is_asked_at_the_same_port() -> None:
    values = {"agent": {"listen": "[::]:9400"}}
    found = rendering.objects(values)
    assert listen_address.parse(settings(values).listen) == ("::", 9400)
    (container,) = rendering.pod_spec(found, AGENT)["containers"]
    assert [port["containerPort"] for port in container["ports"]] == [9400]
    service = rendering.one(found, "Service", AGENT)
    assert service["spec"]["ports"][0]["port"] == 9400
    assert service["metadata"]["annotations"]["prometheus.io/port"] == "9400"


@pytest.mark.parametrize(
    ("root", "mounted"), [("/", "/host"), ("/run/nvidia/driver", "/run/nvidia/driver")]
)
def test_the_agent_finds_folders_of_the_host_where_records_name_them(
    root: str, mounted: str
) -> None:
    values = {
        "agent": {"driverRoot": root, "kubeletDir": "/data/kubelet", "runtimeRoots": ["/run/x"]},
        "settings": {"state-dir": "/run/shares"},
    }
    spec = rendering.pod_spec(rendering.objects(values), AGENT)
    (container,) = spec["containers"]
    words = container["command"]
    assert words[words.index("--kubelet-dir") + 1] == "/data/kubelet/device-plugins"
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in spec["volumes"]}
    assert {paths[m["name"]]: m["mountPath"] for m in container["volumeMounts"]} == {
        None: "/etc/vcuda",
        "/run/shares": "/run/shares",
        "/data/kubelet/device-plugins": "/data/kubelet/device-plugins",
        "/run/x": "/run/x",
        "/dev": "/dev",
        root: mounted,
    }
    assert settings(values).driver_root == mounted


@pytest.mark.parametrize(
    ("agent", "is_read_only"),
    [
        ({}, True),
        ({"driverRoot": "/run/softgpu"}, False),
        ({"driverRoot": "/run/softgpus"}, True),
        ({"driverRoot": "/srv/softgpu", "softwareGpu": True}, False),
    ],
)
def test_only_a_software_gpu_can_be_written_to(agent: dict[str, Any], is_read_only: bool) -> None:
    """The agent writes its state; the driver of a real GPU is only read."""
    (container,) = rendering.pod_spec(rendering.objects({"agent": agent}), AGENT)["containers"]
    (driver,) = (mount for mount in container["volumeMounts"] if mount["name"] == "driver")
    assert driver["readOnly"] is is_read_only


def test_kube_scheduler_knows_every_resource_that_is_offered() -> None:
    found = rendering.objects(HAMI)
    text = rendering.one(found, "ConfigMap", EXTENDER)["data"]["scheduler.yaml"]
    hidden = {"ignoredByScheduler": True}
    assert yaml.safe_load(text) == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": False,
            "resourceName": "vcuda-scheduler",
            "resourceNamespace": "vcuda",
        },
        "profiles": [{"schedulerName": "vcuda-scheduler"}],
        "extenders": [
            {
                "urlPrefix": "https://127.0.0.1:3456/scheduler",
                "enableHTTPS": True,
                "tlsConfig": {
                    "certFile": "/etc/vcuda-tls/client.crt",
                    "keyFile": "/etc/vcuda-tls/client.key",
                    "caFile": "/etc/vcuda-tls/ca.crt",
                },
                "filterVerb": "predicates",
                "prioritizeVerb": "priorities",
                "bindVerb": "bind",
                "preemptVerb": "preempt",
                "weight": 1,
                "nodeCacheCapable": True,
                "ignorable": False,
                "managedResources": [
                    {"name": "tencent.com/vcuda-core"},
                    {"name": "tencent.com/vcuda-memory"},
                    {"name": "nvidia.com/gpu"},
                    {"name": "nvidia.com/gpumem", **hidden},
                    {"name": "nvidia.com/gpumem-percentage", **hidden},
                    {"name": "nvidia.com/gpucores", **hidden},
                ],
            }
        ],
    }


def test_the_extenders_page_shows_the_entry_that_the_chart_writes() -> None:
    with open(rendering.REPOSITORY + "/docs/scheduler.md") as file:
        (block,) = re.findall(r"```yaml\n(# of kube-scheduler.*?)```", file.read(), re.DOTALL)
    text = rendering.one(rendering.objects(HAMI), "ConfigMap", EXTENDER)["data"]["scheduler.yaml"]
    assert yaml.safe_load(block)["extenders"] == yaml.safe_load(text)["extenders"]


def test_pods_restart_when_their_settings_change() -> None:
    def marks(values: Any) -> list[dict[str, str]]:
        found = rendering.objects(values)
        kinds = (("DaemonSet", AGENT), ("Deployment", EXTENDER))
        pods = [rendering.one(found, *each)["spec"]["template"] for each in kinds]
        return [each["metadata"]["annotations"] for each in pods]

    assert all(a != b for a, b in zip(marks({}), marks({"settings": {"placement": "spread"}})))
    agent, scheduler = marks({"scheduler": {"name": "other"}})
    assert agent == marks({})[0]
    assert scheduler != marks({})[1]


def test_the_charts_version_is_the_products() -> None:
    with open(rendering.CHART + "/Chart.yaml") as file:
        chart = yaml.safe_load(file)
    assert (chart["version"], chart["appVersion"]) == (names.VERSION, names.VERSION)


def test_images_are_of_one_registry_and_of_this_version_and_the_clusters() -> None:
    found = rendering.objects({"registry": "registry.example/gpu"}, "1.31")
    specs = [rendering.pod_spec(found, name) for name in (AGENT, EXTENDER)]
    assert [container["image"] for spec in specs for container in spec["containers"]] == [
        f"registry.example/gpu/{AGENT}:{names.VERSION}",
        f"registry.example/gpu/{EXTENDER}:{names.VERSION}",
        "registry.k8s.io/kube-scheduler:v1.31.0",
    ]


@pytest.mark.parametrize("repository", ["r.test/copy", "host:5000/copy", "localhost/copy"])
def test_a_repository_with_a_registry_of_its_own_stays(repository: str) -> None:
    image = {"kubeScheduler": {"image": {"repository": repository, "tag": "v1"}}}
    found = rendering.objects({"registry": "registry.example/gpu", "scheduler": image})
    *_, container = rendering.pod_spec(found, EXTENDER)["containers"]
    assert container["image"] == f"{repository}:v1"


def test_an_image_is_named_by_its_digest_where_one_is_given() -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    found = rendering.objects({"registry": "r.test", "agent": {"image": {"digest": digest}}})
    (container,) = rendering.pod_spec(found, AGENT)["containers"]
    assert container["image"] == f"r.test/vcuda-node-agent@{digest}"
    refused = rendering.refusal({"agent": {"image": {"digest": "sha256:short"}}})
    assert "agent.image.digest: Does not match pattern" in refused


@pytest.mark.parametrize(
    ("offer", "version", "said"),
    [
        ("plugin", "1.36", "schedulerName: vcuda-scheduler"),
        ("dra", "1.36", "ResourceClaim of the DeviceClass"),
        ("dra", "1.35", "a claim gets a whole GPU"),
    ],
)
def test_helms_notes_name_the_way_in_which_pods_ask(
    tmp_path: Path, offer: str, version: str, said: str
) -> None:
    chart = shutil.copytree(rendering.CHART, tmp_path / "chart")
    # `helm template` prints no notes.
    shown = """notes: |\n{{ include "vcuda/templates/NOTES.txt" . | indent 2 }}\n"""
    (chart / "templates/shown.yaml").write_text(shown)
    values = {"settings": {"gpu-offer": offer}}
    words = ("template", "vcuda", str(chart), "--show-only=templates/shown.yaml")
    done = rendering.helm(*words, f"--kube-version={version}.0", values=values)
    notes = yaml.safe_load(done.stdout)["notes"]
    assert said in notes and ("schedulerName" in notes) == (offer == "plugin")
    assert ("enable_cdi = true" in notes) == (offer == "dra")
    assert ("DRAConsumableCapacity" in notes) == (version == "1.35")
    assert "kubectl label node NODE nvidia-device-enable=enable" in notes


@pytest.mark.parametrize(
    ("values", "version", "said"),
    [
        (rendering.DRA, "1.33", "settings.gpu-offer: dra needs Kubernetes 1.34 or later"),
        (rendering.CLAIMS, "1.35", "claims.fromResources needs Kubernetes 1.36 or later"),
    ],
)
def test_what_a_kubernetes_lacks_is_said_by_helm(
    values: rendering.Object, version: str, said: str
) -> None:
    assert said in rendering.refusal(values, version)
