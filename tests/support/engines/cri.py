"""Engines through CRI, called as the kubelet does."""

from __future__ import annotations

import os
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc  # type: ignore[import-untyped]
from cri_api.v1 import api_pb2 as cri
from cri_api.v1.api_pb2_grpc import RuntimeServiceStub

from support.engines.base import IMAGE, Engine, Result, Wanted
from support.waiting import until

NAMESPACE = "default"
CONTAINER = "main"
SECONDS = 60


@dataclass
class Pod:
    name: str
    uid: str
    sandbox_id: str
    sandbox_config: Any  # cri.PodSandboxConfig
    # By container name: the id of the newest container.
    containers: dict[str, str]
    attempts: dict[str, int]


class Cri(Engine):
    """Each container of the common interface is container `main` of its own pod.

    socket: set before `connect`.
    """

    socket: str

    def connect(self) -> None:
        """Open the channel; wait until the engine answers."""
        self._pods: dict[str, Pod] = {}
        self._channel = grpc.insecure_channel(f"unix://{self.socket}")
        self.runtime_service = RuntimeServiceStub(self._channel)
        self.await_ready()

    @abstractmethod
    def restart(self, meanwhile: Callable[[], object] = bool) -> None:
        """Kill the daemon and start it again; its containers continue to run. meanwhile: called
        while there is none."""

    def await_ready(self) -> None:
        until(self._is_ready, f"{self.name}, see its log")

    def close(self) -> None:
        if hasattr(self, "_channel"):
            self._channel.close()
        super().close()

    def _is_ready(self) -> bool:
        try:
            self.runtime_service.Version(cri.VersionRequest(), timeout=5)
        except grpc.RpcError:
            return False
        return True

    def run_pod(
        self,
        name: str,
        *,
        uid: str | None = None,
        annotations: Mapping[str, str] | None = None,
        handler: str = "vcuda",
    ) -> Pod:
        """A sandbox with the host's network: no network plugin is needed.

        `annotations` are the pod's own, which its author writes.
        """
        uid = uid or str(uuid.uuid4())
        logs = self.host.path("pods", uid)
        os.makedirs(logs, exist_ok=True)  # the folder exists for the same pod after a reboot
        host_network = cri.NamespaceOption(network=cri.NODE, pid=cri.CONTAINER, ipc=cri.POD)
        config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=name, uid=uid, namespace=NAMESPACE),
            log_directory=logs,
            labels=_pod_labels(name, uid),
            annotations={"kubernetes.io/config.source": "api", **(annotations or {})},
            linux=cri.LinuxPodSandboxConfig(
                cgroup_parent=f"{self.host.cgroup_parent}/pod{uid}",
                security_context=cri.LinuxSandboxSecurityContext(namespace_options=host_network),
            ),
        )
        answer = self.runtime_service.RunPodSandbox(
            cri.RunPodSandboxRequest(config=config, runtime_handler=handler), timeout=SECONDS
        )
        pod = Pod(name, uid, answer.pod_sandbox_id, config, {}, {})
        self._pods[name] = pod
        return pod

    def start_container(
        self,
        pod: Pod,
        args: Sequence[str],
        *,
        name: str = CONTAINER,
        env: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        mounts: Sequence[tuple[str, str]] = (),
        cdi: Sequence[str] = (),
    ) -> str:
        """Create and start a container; return its CRI id. cdi: names of CDI devices.

        The same name again is a restart as by the kubelet: a new container with a higher attempt
        and the same answer of Allocate.
        """
        attempt = pod.attempts.get(name, -1) + 1
        pod.attempts[name] = attempt
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=name, attempt=attempt),
            image=cri.ImageSpec(image=IMAGE, user_specified_image=IMAGE),
            command=list(args),
            envs=[cri.KeyValue(key=key, value=value) for key, value in (env or {}).items()],
            mounts=[
                cri.Mount(host_path=outside, container_path=inside, readonly=True)
                for outside, inside in mounts
            ],
            labels={**_pod_labels(pod.name, pod.uid), "io.kubernetes.container.name": name},
            annotations={
                "io.kubernetes.container.restartCount": str(attempt),
                "io.kubernetes.pod.terminationGracePeriod": "30",
                **(annotations or {}),
            },
            log_path=f"{name}/{attempt}.log",
            CDI_devices=[cri.CDIDevice(name=device) for device in cdi],
            linux=cri.LinuxContainerConfig(
                security_context=cri.LinuxContainerSecurityContext(
                    namespace_options=pod.sandbox_config.linux.security_context.namespace_options
                )
            ),
        )
        os.makedirs(os.path.join(pod.sandbox_config.log_directory, name), exist_ok=True)
        container_id: str = self.runtime_service.CreateContainer(
            cri.CreateContainerRequest(
                pod_sandbox_id=pod.sandbox_id, config=config, sandbox_config=pod.sandbox_config
            ),
            timeout=SECONDS,
        ).container_id
        pod.containers[name] = container_id
        self.runtime_service.StartContainer(
            cri.StartContainerRequest(container_id=container_id), timeout=SECONDS
        )
        return container_id

    def status(self, container_id: str) -> Any:
        request = cri.ContainerStatusRequest(container_id=container_id)
        return self.runtime_service.ContainerStatus(request, timeout=SECONDS).status

    def wait_for(self, container_id: str) -> int:
        until(
            lambda: self.status(container_id).state == cri.CONTAINER_EXITED,
            f"the end of {container_id}",
        )
        return int(self.status(container_id).exit_code)

    def output(self, pod: Pod, name: str = CONTAINER) -> tuple[str, str]:
        """Standard output and standard error of a container's newest attempt."""
        folder = pod.sandbox_config.log_directory
        log = os.path.join(folder, name, f"{pod.attempts[name]}.log")
        texts = {"stdout": "", "stderr": ""}
        with open(log) as lines:
            for line in lines:
                # `TIME STREAM F|P TEXT`; P is a part of a line that was too long.
                _, stream, whole, text = line.rstrip("\n").split(" ", 3)
                texts[stream] += text + ("\n" if whole == "F" else "")
        return texts["stdout"], texts["stderr"]

    def exec_in(self, container_id: str, args: Sequence[str]) -> Result:
        request = cri.ExecSyncRequest(container_id=container_id, cmd=list(args), timeout=SECONDS)
        answer = self.runtime_service.ExecSync(request, timeout=SECONDS)
        return Result(answer.exit_code, answer.stdout.decode(), answer.stderr.decode())

    def stop_container(self, container_id: str) -> None:
        request = cri.StopContainerRequest(container_id=container_id, timeout=0)
        self.runtime_service.StopContainer(request, timeout=SECONDS)

    def remove_container(self, container_id: str) -> None:
        request = cri.RemoveContainerRequest(container_id=container_id)
        self.runtime_service.RemoveContainer(request, timeout=SECONDS)

    def remove_pod(self, pod: Pod) -> None:
        for container_id in pod.containers.values():
            self.stop_container(container_id)
            self.remove_container(container_id)
        self.remove_sandbox(pod)

    def remove_sandbox(self, pod: Pod) -> None:
        """Remove the sandbox with its running containers, as a forced deletion does."""
        stop = cri.StopPodSandboxRequest(pod_sandbox_id=pod.sandbox_id)
        self.runtime_service.StopPodSandbox(stop, timeout=SECONDS)
        remove = cri.RemovePodSandboxRequest(pod_sandbox_id=pod.sandbox_id)
        self.runtime_service.RemovePodSandbox(remove, timeout=SECONDS)
        self._pods.pop(pod.name, None)

    def _run(self, wanted: Wanted) -> Result:
        started = self._start(wanted)
        try:
            if started.rc:
                return started
            rc = self.wait(wanted.container_id)
            return Result(rc, *self.output(self._pods[wanted.container_id]))
        finally:
            self.delete(wanted.container_id)

    def _start(self, wanted: Wanted) -> Result:
        """rc 1 and the engine's message when the pod or the container is refused."""
        try:
            pod = self.run_pod(wanted.container_id)
            container_id = self.start_container(
                pod,
                wanted.args,
                env=wanted.env,
                annotations=wanted.annotations,
                mounts=wanted.mounts,
            )
        except grpc.RpcError as error:
            return Result(1, "", str(error.details()))
        return Result(0, container_id + "\n", "")

    def main(self, container_id: str) -> str:
        return self._pods[container_id].containers[CONTAINER]

    def exec(self, container_id: str, args: Sequence[str]) -> Result:
        return self.exec_in(self.main(container_id), args)

    def wait(self, container_id: str) -> int:
        return self.wait_for(self.main(container_id))

    def logs(self, container_id: str) -> str:
        return self.output(self._pods[container_id])[0]

    def delete(self, container_id: str) -> None:
        if container_id in self._pods:
            self.remove_pod(self._pods[container_id])


def _pod_labels(name: str, uid: str) -> dict[str, str]:
    return {
        "io.kubernetes.pod.name": name,
        "io.kubernetes.pod.namespace": NAMESPACE,
        "io.kubernetes.pod.uid": uid,
    }
