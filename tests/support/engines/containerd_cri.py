"""A private containerd, called through CRI."""

from __future__ import annotations

from collections.abc import Callable

from support.engines.containerd import Containerd
from support.engines.cri import Cri


class ContainerdCri(Cri, Containerd):
    name = "containerd-cri"
    namespace = "k8s.io"

    def open(self) -> None:
        super().open()
        self.connect()

    def restart(self, meanwhile: Callable[[], object] = bool) -> None:
        Containerd.restart(self, meanwhile)
        self.await_ready()

    def kill(self, container_id: str, signal: str = "KILL") -> None:
        # CRI has no signals; `ctr` reaches the same container.
        self.ctr("task", "kill", f"--signal={signal}", self.main(container_id))


class ContainerdCriV2(ContainerdCri):
    name = "containerd-cri-v2"
    cgroup_world = "v2"
    # Else it gives each sandbox cpu shares; where v1 has the cpu controller, v2 has no cpu.weight.
    disable_cgroup = True
