"""Run a manifest's pod in the engine as the kubelet does.

The image is the tests' own, with the host's programs and libraries mounted over it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from cri_api.v1 import api_pb2 as cri

from support.engines.base import IMAGE
from support.engines.cri import SECONDS, Cri

_PROPAGATION = {
    None: cri.PROPAGATION_PRIVATE,
    "HostToContainer": cri.PROPAGATION_HOST_TO_CONTAINER,
}
# Folders that an image of Debian would have.
_OF_THE_IMAGE = ("/usr", "/lib", "/lib64")


class ManifestPod:
    """The container of a manifest's `spec`.

    options: added to its command. beside: more mounts, host path to container path. folders: a
    folder for each volume that is no hostPath, by the volume's name. node: the value of fieldRefs.
    It uses the host's network, the only one that the tests' engine has.
    """

    def __init__(
        self,
        engine: Cri,
        spec: Mapping[str, Any],
        *,
        name: str,
        program: str,
        options: Sequence[str],
        folders: Mapping[str, str],
        beside: Mapping[str, str],
        node: str,
    ) -> None:
        self._engine, self._name = engine, name
        (container,) = spec["containers"]
        context = container["securityContext"]
        pid = cri.NODE if spec.get("hostPID") else cri.CONTAINER
        namespaces = cri.NamespaceOption(network=cri.NODE, pid=pid, ipc=cri.POD)
        self.logs = engine.host.path("pods", name)
        os.makedirs(self.logs)
        self._sandbox_config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=name, uid=name, namespace="vcuda"),
            log_directory=self.logs,
            linux=cri.LinuxPodSandboxConfig(
                cgroup_parent=f"{engine.host.cgroup_parent}/pod{name}",
                security_context=cri.LinuxSandboxSecurityContext(
                    namespace_options=namespaces, privileged=context.get("privileged", False)
                ),
            ),
        )
        self._config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=container["name"]),
            image=cri.ImageSpec(image=IMAGE),
            command=[program, *container["command"][1:], *options],
            envs=[cri.KeyValue(key=each["name"], value=node) for each in container.get("env", [])],
            mounts=[
                *(_mount(path, path, readonly=True) for path in _OF_THE_IMAGE),
                *_mounts(spec["volumes"], container["volumeMounts"], folders),
                *(_mount(outside, inside) for outside, inside in beside.items()),
            ],
            log_path=container["name"] + ".log",
            linux=cri.LinuxContainerConfig(
                security_context=cri.LinuxContainerSecurityContext(
                    namespace_options=namespaces,
                    privileged=context.get("privileged", False),
                    readonly_rootfs=context.get("readOnlyRootFilesystem", False),
                )
            ),
        )
        self._sandbox = self._container = ""

    def start(self) -> None:
        service = self._engine.runtime_service
        self._sandbox = service.RunPodSandbox(
            cri.RunPodSandboxRequest(config=self._sandbox_config), timeout=SECONDS
        ).pod_sandbox_id
        self._container = service.CreateContainer(
            cri.CreateContainerRequest(
                pod_sandbox_id=self._sandbox,
                config=self._config,
                sandbox_config=self._sandbox_config,
            ),
            timeout=SECONDS,
        ).container_id
        service.StartContainer(
            cri.StartContainerRequest(container_id=self._container), timeout=SECONDS
        )

    def end(self) -> int:
        """Stop the container as for a deleted pod; return its exit code."""
        service = self._engine.runtime_service
        stop = cri.StopContainerRequest(container_id=self._container, timeout=20)
        service.StopContainer(stop, timeout=SECONDS)
        code = int(self._engine.status(self._container).exit_code)
        service.StopPodSandbox(
            cri.StopPodSandboxRequest(pod_sandbox_id=self._sandbox), timeout=SECONDS
        )
        service.RemovePodSandbox(
            cri.RemovePodSandboxRequest(pod_sandbox_id=self._sandbox), timeout=SECONDS
        )
        return code

    def log(self) -> str:
        path = f"{self.logs}/{self._config.log_path}"
        if not os.path.exists(path):
            return ""
        with open(path) as lines:
            return lines.read()


def _mounts(volumes: Any, wanted: Any, folders: Mapping[str, str]) -> list[Any]:
    paths = {
        volume["name"]: volume["hostPath"]["path"] if "hostPath" in volume else ""
        for volume in volumes
    }
    # The kubelet sorts mounts so that outer folders come first, whatever the manifest's order.
    return [
        _mount(
            paths[each["name"]] or folders[each["name"]],
            each["mountPath"],
            readonly=each.get("readOnly", False),
            propagation=_PROPAGATION[each.get("mountPropagation")],
        )
        for each in sorted(wanted, key=lambda each: each["mountPath"].count("/"))
    ]


def _mount(outside: str, inside: str, **more: Any) -> Any:
    return cri.Mount(host_path=outside, container_path=inside, **more)
