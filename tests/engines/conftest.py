"""Fixtures: engines, which start when a test first needs them and live until the session ends."""

from __future__ import annotations

import glob
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support import compiled
from support.agent.agent_fixtures import agent_prefix, new_node, node
from support.bundle import image, rootfs
from support.engines import ENGINES
from support.engines.base import IMAGE, Engine, Files
from support.engines.cri import Cri, Pod
from support.engines.low_level import LowLevel
from support.host import cgroups, own_run
from support.kubelet.cluster_node import ClusterNode
from support.needed import skip_or_fail
from support.product import Product, missing
from support.wrapper.entry_points import KINDS, LOW_LEVEL, WRAPPER, EntryPoint
from support.wrapper.runtime_recorder import Recorder

__all__ = ["agent_prefix", "new_node", "node"]

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(scope="session")
def host_is_left_as_it_was() -> Iterator[None]:
    """At the end of the session: no mount, process, cgroup, file of the engines is left, and no
    device is denied to the host."""
    own_run.sweep()
    before, denied = _engine_files(), _denied()
    yield
    assert _denied() == denied
    mine = f"{own_run.PREFIX}{own_run.name()}."
    with open("/proc/self/mountinfo") as mounts:
        assert [line for line in mounts if mine in line] == []
    assert [
        name for name in os.listdir("/tmp") if name.startswith(mine) and not name.endswith(".lock")
    ] == []
    assert _processes_with(mine) == []
    assert cgroups.named(mine.replace(".", "-")) == set()
    assert _engine_files() == before


def _denied() -> list[int]:
    """Minors of NVIDIA's devices of which the host's own root can make no node."""
    denied = []
    with tempfile.TemporaryDirectory() as folder:
        for minor in (*range(16), 255):
            try:
                os.mknod(f"{folder}/{minor}", stat.S_IFCHR | 0o600, os.makedev(195, minor))
            except PermissionError:
                denied.append(minor)
    return denied


@pytest.fixture(scope="session")
def session_folder(host_is_left_as_it_was: None) -> Iterator[str]:
    folder = own_run.scratch_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def scratch(session_folder: str) -> str:
    """A folder of this test; tmp_path would stay behind after the session."""
    return tempfile.mkdtemp(dir=session_folder)


@pytest.fixture(scope="session")
def files(session_folder: str) -> Files:
    if os.geteuid() != 0:
        skip_or_fail("starting containers takes root")
    folder = os.path.join(session_folder, "image")
    os.mkdir(folder)
    programs = {
        "/usr/bin/open-node": compiled.program(folder, "open_node"),
        "/usr/bin/set-attributes": compiled.program(folder, "set_attributes"),
        "/usr/bin/hold-lease": compiled.program(folder, "hold_lease"),
    }
    built = os.path.join(REPOSITORY, "build/softgpu/vcuda-workload")
    if os.path.exists(built):
        programs["/usr/bin/vcuda-workload"] = built
    for smi in glob.glob(
        os.path.join(REPOSITORY, "build/genuine/*/usr/lib/nvidia/current/nvidia-smi")
    ):
        version = os.path.relpath(smi, os.path.join(REPOSITORY, "build/genuine")).split(".")[0]
        programs[f"/usr/bin/nvidia-smi-{version}"] = smi
    tree, layer, packed = (os.path.join(folder, name) for name in ("rootfs", "layer.tar", "image"))
    try:
        rootfs.build(tree, programs)
    except rootfs.Missing as missing:
        skip_or_fail(str(missing))
    rootfs.as_tar(tree, layer)
    image.write(packed, layer, IMAGE)
    return Files(tree, layer, packed, compiled.library(folder, "no_setrlimit"))


@pytest.fixture(scope="session")
def start_engine(files: Files) -> Iterator[Callable[[str], Engine]]:
    """An engine by its name, started once."""
    started: dict[str, Engine] = {}
    with ExitStack() as stack:

        def start(name: str) -> Engine:
            if name not in started:
                engine = ENGINES[name]
                reason = engine.missing()
                if reason is not None:
                    skip_or_fail(f"{name}: {reason}")
                started[name] = engine(files)
                stack.callback(started[name].close)
            return started[name]

        yield start


@pytest.fixture(params=list(ENGINES))
def engine(
    request: pytest.FixtureRequest, start_engine: Callable[[str], Engine]
) -> Iterator[Engine]:
    """Each engine in turn, with the plain low-level runtime until the test swaps it."""
    started = start_engine(request.param)
    with started.using(started.plain_runtime()):
        yield started


@pytest.fixture
def cri(request: pytest.FixtureRequest, start_engine: Callable[[str], Engine]) -> Iterator[Cri]:
    """containerd, spoken to as the kubelet does; with `each_cri` CRI-O too."""
    started = start_engine(getattr(request, "param", "containerd-cri"))
    assert isinstance(started, Cri)
    with started.using(started.plain_runtime()):
        yield started


@pytest.fixture(params=[f"{name}-{kind}" for name in LOW_LEVEL for kind in (WRAPPER, *KINDS)])
def entry_point(
    request: pytest.FixtureRequest, start_engine: Callable[[str], Engine], product: Product
) -> Iterator[EntryPoint]:
    """Each low-level runtime by each way in; after the test nothing may be held."""
    name, _, kind = request.param.rpartition("-")
    engine = start_engine(name)
    assert isinstance(engine, LowLevel)
    with product.on(engine), engine.using(engine.plain_runtime()):
        yield EntryPoint(engine, product, kind)
    assert product.allocations(engine) == []


@pytest.fixture(scope="session")
def product(files: Files, session_folder: str) -> Product:
    """The product, installed once; Product.on puts it in front of an engine's runtime."""
    reason = missing()
    if reason is not None:
        skip_or_fail(reason)
    return Product(os.path.join(session_folder, "product"))


@pytest.fixture(scope="session")
def product_of_proc_driver(files: Files, session_folder: str) -> Product:
    """The same, installed so that the folder of the kernel's driver is /proc/driver.

    No kernel here has /proc/driver/nvidia.
    """
    reason = missing()
    if reason is not None:
        skip_or_fail(reason)
    product = Product(os.path.join(session_folder, "of-proc-driver"))
    folder = os.path.join(product.prefix, "lib/vcuda/python/vcuda_oci")
    path = os.path.join(folder, "model", "names.py")
    with open(path) as file:
        text = file.read()
    changed = text.replace('KERNEL_DRIVER = "driver/nvidia"', 'KERNEL_DRIVER = "driver"')
    assert changed != text
    with open(path, "w") as file:
        file.write(changed)
    for bytecode in (
        "__pycache__",
        "model/__pycache__",
    ):  # it would be used without checking the source
        shutil.rmtree(os.path.join(folder, bytecode))
    return product


@pytest.fixture
def cluster_node(cri: Cri, product: Product, tmp_path: Path) -> Iterator[ClusterNode]:
    """A node of a cluster with two GPUs, of which placement takes the first while it has room."""
    with product.on(cri):
        node = ClusterNode(cri, product, str(tmp_path))
        try:
            node.start_agent()
            yield node
        finally:
            node.close()


@pytest.fixture
def container() -> str:
    """A name for a container of this test."""
    return f"c-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def pod(cri: Cri, product: Product, container: str) -> Iterator[Pod]:
    """A pod without containers yet, on an engine with vcuda."""
    with product.on(cri):
        pod = cri.run_pod(container)
        yield pod
        cri.remove_pod(pod)


@pytest.fixture
def record(scratch: str) -> Callable[[str], Recorder]:
    """A recorder in front of the given runtime."""
    return lambda runtime: Recorder(os.path.join(tempfile.mkdtemp(dir=scratch), "calls"), runtime)


def _processes_with(text: str) -> list[str]:
    """Command lines on this host that name one of our folders."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(f"{pid} {line}")
    return found


def _engine_files() -> dict[str, bool]:
    """Which of the places exist where these engines write by default."""
    places = (
        "/etc/docker",
        "/etc/docker/key.json",
        "/run/docker.sock",
        "/run/docker",
        # Not its parent: runc makes that when an agent outside of the engine asks it for a state.
        "/run/containerd/s",
        "/run/crio",
        "/run/libpod",
        "/run/runc",
        "/run/crun",
        "/run/vcuda",
        "/var/lib/containers",
        "/var/lib/cni",
        "/var/lib/crio",
        "/var/lib/docker",
        "/var/lib/containerd",
        "/dev/shm/libpod_lock",
        "/sys/fs/cgroup/devices/libpod_parent",
        "/sys/fs/cgroup/devices/docker",
        "/sys/fs/cgroup/devices/default",
    )
    return {place: os.path.lexists(place) for place in places}
