"""Engines configured by `vcuda configure` start containers with a share."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import closing

import pytest

from support.engines.base import IMAGE, Engine, Files
from support.engines.containerd_cri import ContainerdCri
from support.engines.cri import Cri
from support.engines.crio import Crio
from support.engines.docker import Docker
from support.engines.podman import Podman
from support.needed import skip_or_fail
from support.product import MIB, Product, asking
from support.waiting import until

LIMIT = 1024 * MIB
FILL = ["vcuda-workload", "alloc", "--chunk", str(LIMIT)]
FULL = {
    "allocated_bytes": LIMIT,
    "exact_bytes": LIMIT,
    "error": "CUDA_ERROR_OUT_OF_MEMORY",
}
CRI = 'plugins."io.containerd.grpc.v1.cri"'


def configure(engine: Engine, product: Product, *words: str) -> str:
    """Run `vcuda configure` on the engine's host; return its result."""
    product.configure(engine)
    path = {"PATH": engine.path()} if isinstance(engine, Crio) else {}
    return engine.host.check([f"{product.prefix}/bin/vcuda", "configure", *words], env=path)


class PlainDocker(Docker):
    """dockerd with the default settings file, which names no vcuda runtime."""

    def config(self) -> str:
        path = "/etc/docker/daemon.json"
        text = '{\\n    "features": {"buildkit": true},\\n    "log-driver": "json-file"\\n}'
        self.host.check(["sh", "-c", f"mkdir -p /etc/docker; printf '{text}' >{path}"])
        return path

    def reload(self) -> None:
        """As `systemctl reload docker` does."""
        os.kill(self.daemon_pid(), signal.SIGHUP)

    def daemon_pid(self) -> int:
        """dockerd's, as seen from here: its pid file has that of its own namespace."""
        inside = self.host.read("dockerd.pid").strip()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/status") as status, open(f"/proc/{pid}/cmdline") as line:
                    is_ours = f"--exec-root={self.host.path('exec')}" in line.read()
                    if is_ours and f"\t{inside}\n" in status.read():
                        return int(pid)
            except OSError:
                continue
        raise RuntimeError("no dockerd")

    def runtimes(self) -> set[str]:
        listed = json.loads(self.host.check(self.command("info", "--format={{json .Runtimes}}")))
        return set(listed)


class PlainContainerd(ContainerdCri):
    """`before`: what its configuration file says before vcuda's command."""

    product: Product
    before: str

    def config(self) -> str:
        path = self.host.write("config.toml", self.before.replace("FOLDER", self.host.folder))
        configure(self, self.product, "containerd", "--config", path)
        return path


class PlainCrio(Crio):
    """Without a handler of ours until vcuda's command adds one."""

    handler = ""
    product: Product

    def configure(self) -> None:
        super().configure()
        configure(self, self.product, "crio")


class PlainPodman(Podman):
    """`runtime_option`: how its user names the runtime."""

    runtime_option: tuple[str, ...] = ()

    def command(self, *arguments: str) -> list[str]:
        words = super().command(*arguments)
        at = words.index(f"--runtime={self.runtime}")
        return [*words[:at], *self.runtime_option, *words[at + 1 :]]


def started(engine: type[Engine], files: Files) -> Engine:
    reason = engine.missing()
    if reason is not None:
        skip_or_fail(f"{engine.name}: {reason}")
    return engine(files)


def assert_a_share(engine: Engine, container: str) -> None:
    result = engine.run(container, FILL, **asking(engine, core=30, memory_bytes=LIMIT))
    assert result.rc == 0, result.stderr
    assert json.loads(result.stdout) == FULL


def test_docker_takes_the_runtime_at_a_reload(
    files: Files, product: Product, container: str
) -> None:
    with closing(started(PlainDocker, files)) as docker:
        assert isinstance(docker, PlainDocker)
        before = docker.host.check(["cat", "/etc/docker/daemon.json"])
        assert "vcuda" not in docker.runtimes()
        result = configure(docker, product, "docker")
        assert result.endswith("then run: systemctl reload docker\n")
        docker.reload()
        until(lambda: "vcuda" in docker.runtimes(), "the runtime")
        assert_a_share(docker, container)
        assert product.allocations(docker) == []
        result = configure(docker, product, "docker", "--undo")
        assert docker.host.check(["cat", "/etc/docker/daemon.json"]) == before
        # A reload would leave it.
        assert result.endswith("then run: systemctl restart docker\n")


# Debian's file, and the output of `containerd config default`.
FILES = {
    "debian": f"""version = 2
root = "FOLDER/root"
state = "FOLDER/state"

[grpc]
  address = "FOLDER/c.sock"

[plugins]
  [{CRI}]
    # Without CAP_SYS_RESOURCE a negative oom_score_adj fails the pod.
    restrict_oom_score_adj = true
    sandbox_image = "{IMAGE}"
    [{CRI}.containerd]
      snapshotter = "native"
""",
    "default": "",
}


def default_config(engine: type[Engine]) -> str:
    """containerd's own, with what this machine needs changed in it."""
    reason = engine.missing()
    if reason is not None:
        skip_or_fail(f"{engine.name}: {reason}")
    words = ["containerd", "config", "default"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for key, value in {
        "root": '"FOLDER/root"',
        "state": '"FOLDER/state"',
        "snapshotter": '"native"',
        "sandbox_image": f'"{IMAGE}"',
        "restrict_oom_score_adj": "true",
    }.items():
        text, count = re.subn(rf"(?m)^( *){key} = .*$", rf"\1{key} = {value}", text)
        assert count, key
    return text.replace('"/run/containerd/containerd.sock"', '"FOLDER/c.sock"')


@pytest.mark.parametrize("kind", list(FILES))
def test_containerd_has_the_handler_beside_runc(
    files: Files, product: Product, container: str, kind: str
) -> None:
    before = FILES[kind] or default_config(ContainerdCri)
    made = type("Configured", (PlainContainerd,), {"product": product, "before": before})
    with closing(started(made, files)) as cri:
        assert isinstance(cri, ContainerdCri)
        assert_a_share(cri, container)
        assert_no_share_by_other_handlers(cri, container)


def assert_no_share_by_other_handlers(cri: Cri, container: str) -> None:
    for handler in ("runc", ""):
        pod = cri.run_pod(container + handler, handler=handler)
        try:
            asked = asking(cri, core=30, memory_bytes=LIMIT)
            plain = cri.start_container(pod, ["ls", "/usr/local"], **asked)
            assert cri.wait_for(plain) == 1
        finally:
            cri.remove_pod(pod)


def test_crio_has_the_handler_beside_runc(files: Files, product: Product, container: str) -> None:
    made = type("Configured", (PlainCrio,), {"product": product})
    with closing(started(made, files)) as crio:
        assert isinstance(crio, PlainCrio)
        written = crio.host.check(["cat", "/etc/crio/crio.conf.d/99-vcuda.conf"])
        assert f'runtime_root = "{crio.host.path("runc")}"' in written
        assert_a_share(crio, container)
        assert_no_share_by_other_handlers(crio, container)
        result = configure(crio, product, "crio", "--undo")
        assert result.endswith("then run: systemctl restart crio\n")
        assert crio.host.run(["ls", "/etc/crio/crio.conf.d/99-vcuda.conf"]).rc != 0


@pytest.mark.parametrize(
    ("words", "option"),
    [(["podman"], ("--runtime=vcuda",)), (["podman", "--default"], ())],
    ids=["by its name", "as the default"],
)
def test_podman_knows_the_runtime(
    files: Files, product: Product, container: str, words: list[str], option: tuple[str, ...]
) -> None:
    made = type("Configured", (PlainPodman,), {})
    with closing(started(made, files)) as podman:
        assert isinstance(podman, PlainPodman)
        podman.runtime_option = ("--runtime=vcuda",)
        assert podman.run(container, ["true"]).rc != 0
        configure(podman, product, *words)
        podman.runtime_option = option
        assert_a_share(podman, container)
        refused = podman.run(container, ["true"], **asking(podman, core=30, memory_bytes=1 << 45))
        podman.delete(container)
        assert re.search(r"vcuda-container-runtime: placement: .*; ask for less", refused.stderr)
        configure(podman, product, "podman", "--undo")
        podman.runtime_option = ("--runtime=vcuda",)
        assert podman.run(container, ["true"]).rc != 0
        # crun, its own default, refuses this machine's cgroups.
        podman.runtime_option = ("--runtime=runc",)
        assert podman.run(container, ["echo", "plain"]).stdout == "plain\n"
