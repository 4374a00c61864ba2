"""For each object of GPUManager's gpu-manager.yaml, the chart's replacement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contract.chart import rendering
from contract.chart.rendering import AGENT, CLUSTER, EXTENDER, one, pod_spec
from vcuda_plugin.extender.quota import quota_limits

CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}


@pytest.fixture(params=[{}, CLUSTER], ids=["own", "cluster"])
def found(request: pytest.FixtureRequest) -> list[rendering.Object]:
    return rendering.objects(request.param)


def quota_place(found: list[rendering.Object], folder: Path) -> quota_limits.QuotaPlace:
    """As the extender reads it that is started so."""
    (extender, *_) = pod_spec(found, EXTENDER)["containers"]
    _, _, path = " ".join(extender["command"]).partition("--quota-config")[2].partition("/")
    folders = {each["name"]: each["mountPath"] for each in extender["volumeMounts"]}
    name = f"/{path}".split()[0].removeprefix(folders["scheduler"] + "/")
    data = one(found, "ConfigMap", EXTENDER)["data"][name]
    (folder / "quota.json").write_text(data)
    return quota_limits.load_place(str(folder / "quota.json"))


def test_config_map_gpu_quota_admission_quotas_are_where_they_were(
    found: list[rendering.Object], tmp_path: Path
) -> None:
    place = quota_place(found, tmp_path)
    assert (place.name, place.namespace) == ("gpuquota", "kube-system")
    assert place.model_labels[0] == "gaia.tencent.com/gpu-model"
    assert place.pool_labels[0] == "gaia.tencent.com/gpu-pool"


@pytest.mark.parametrize("mode", [{}, CLUSTER["scheduler"]], ids=["own", "cluster"])
def test_config_map_gpu_quota_admission_quotas_may_be_elsewhere(mode: Any, tmp_path: Path) -> None:
    quota = {
        "configMap": "limits",
        "namespace": "ops",
        "modelLabel": "example.com/model",
        "poolLabel": "example.com/pool",
    }
    found = rendering.objects({"scheduler": {**mode, "quota": quota}})
    assert quota_place(found, tmp_path) == quota_limits.QuotaPlace(
        "limits", "ops", ("example.com/model",), ("example.com/pool",)
    )
    role = one(found, "Role", f"{EXTENDER}-quota")
    assert (role["metadata"]["namespace"], role["rules"][0]["resourceNames"]) == ("ops", ["limits"])
    assert one(found, "RoleBinding", f"{EXTENDER}-quota")["metadata"]["namespace"] == "ops"


def test_service_gpu_quota_admission_the_extender_answers_at_3456(
    found: list[rendering.Object],
) -> None:
    text = json.dumps(one(found, "ConfigMap", EXTENDER)["data"])
    assert ":3456/scheduler" in text
    for service in (each for each in found if each["kind"] == "Service"):
        if service["metadata"]["name"] == EXTENDER:
            assert [port["port"] for port in service["spec"]["ports"]] == [3456]


def test_deployment_gpu_quota_admission_runs_near_the_control_plane_and_is_not_put_off(
    found: list[rendering.Object],
) -> None:
    assert one(found, "Deployment", EXTENDER)["spec"]["replicas"] == 1
    spec = pod_spec(found, EXTENDER)
    assert spec["priorityClassName"] == "system-cluster-critical"
    assert {**CONTROL_PLANE, "effect": "NoSchedule"} in spec["tolerations"]
    (near,) = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert near["preference"]["matchExpressions"] == [CONTROL_PLANE]
    # No init container with more rights precedes it.
    rights = {json.dumps(each["securityContext"]) for each in spec.get("initContainers", ())}
    assert rights <= {json.dumps(spec["containers"][0]["securityContext"])}


def test_no_account_of_gpu_manager_is_cluster_admin(
    found: list[rendering.Object],
) -> None:
    bound = {each["roleRef"]["name"] for each in found if each["kind"] == "ClusterRoleBinding"}
    assert bound - {"system:kube-scheduler", "system:volume-scheduler"} == {AGENT, EXTENDER}
    rules = [
        rule for each in found if each["kind"] in ("ClusterRole", "Role") for rule in each["rules"]
    ]
    assert [rule for rule in rules if "*" in json.dumps(rule)] == []


def test_service_account_gpu_manager_each_program_has_its_own(
    found: list[rendering.Object],
) -> None:
    accounts = {each["metadata"]["name"] for each in found if each["kind"] == "ServiceAccount"}
    assert accounts == {AGENT, EXTENDER}
    assert {pod_spec(found, name)["serviceAccountName"] for name in accounts} == accounts


def test_service_gpu_manager_metric_prometheus_finds_every_agent_at_5678(
    found: list[rendering.Object],
) -> None:
    service = one(found, "Service", AGENT)
    assert service["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
    assert (service["spec"]["clusterIP"], service["spec"]["ports"][0]["port"]) == ("None", 5678)


def test_daemon_set_gpu_manager_daemonset_the_agent_runs_on_the_same_nodes(
    found: list[rendering.Object],
) -> None:
    assert one(found, "DaemonSet", AGENT)["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    spec = pod_spec(found, AGENT)
    assert spec["nodeSelector"] == {"nvidia-device-enable": "enable"}
    assert spec["priorityClassName"] == "system-node-critical"
    tolerated = {(each["key"], each.get("effect")) for each in spec["tolerations"]}
    assert {("CriticalAddonsOnly", None), ("tencent.com/vcuda-core", "NoSchedule")} <= tolerated
    assert spec["hostPID"] is True
    assert "initContainers" not in spec
    (container,) = spec["containers"]
    assert [port["containerPort"] for port in container["ports"]] == [5678]
    assert [each["name"] for each in container["env"]] == [
        "NODE_NAME", "POD_NAMESPACE", "POD_NAME", "POD_UID"
    ]  # fmt: skip
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert "/var/lib/kubelet/device-plugins" in mounted
    # Neither an engine's socket nor all of /usr, /var/run and cgroups.
    assert not {"/var/run/docker.sock", "/var/run", "/usr", "/sys/fs/cgroup"} & mounted
