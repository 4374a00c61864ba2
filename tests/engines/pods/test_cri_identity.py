"""What containerd writes into config.json of a kubelet's containers: their identity, and no
more."""

from __future__ import annotations

from collections.abc import Callable

from support.engines.cri import Cri
from support.wrapper.runtime_recorder import Recorder


def test_a_container_of_a_pod_carries_its_identity(
    cri: Cri, container: str, record: Callable[[str], Recorder]
) -> None:
    recorder = record(cri.plain_runtime())
    with cri.using(recorder.path):
        pod = cri.run_pod(container)
        try:
            cri.wait_for(cri.start_container(pod, ["true"], name="worker"))
        finally:
            cri.remove_pod(pod)
    sandbox, worker = (config["annotations"] for config in recorder.configs())
    assert sandbox["io.kubernetes.cri.container-type"] == "sandbox"
    assert {key: worker.get("io.kubernetes.cri." + key) for key in IDENTITY} == {
        "container-name": "worker",
        "container-type": "container",
        "sandbox-id": pod.sandbox_id,
        "sandbox-name": pod.name,
        "sandbox-namespace": "default",
        "sandbox-uid": pod.uid,
    }


def test_a_pod_author_cannot_write_our_annotations(
    cri: Cri, container: str, record: Callable[[str], Recorder]
) -> None:
    forged = {"vcuda.io/core": "100", "tencent.com/vcuda-core": "100"}
    recorder = record(cri.plain_runtime())
    with cri.using(recorder.path):
        pod = cri.run_pod(container, annotations=forged)
        try:
            cri.wait_for(cri.start_container(pod, ["true"]))
        finally:
            cri.remove_pod(pod)
    configs = recorder.configs()
    assert configs
    for config in configs:
        assert not forged.keys() & config["annotations"].keys()


def test_a_restarted_container_is_a_new_one_of_the_same_pod(cri: Cri, container: str) -> None:
    pod = cri.run_pod(container)
    try:
        script = ["sh", "-c", "echo up; exit 1"]
        first = cri.start_container(pod, script)
        assert cri.wait_for(first) == 1
        cri.remove_container(first)
        second = cri.start_container(pod, script)
        assert cri.wait_for(second) == 1
        assert second != first
        assert cri.output(pod) == ("up\n", "")
        assert cri.status(second).metadata.attempt == 1
    finally:
        cri.remove_pod(pod)


IDENTITY = (
    "container-name",
    "container-type",
    "sandbox-id",
    "sandbox-name",
    "sandbox-namespace",
    "sandbox-uid",
)
