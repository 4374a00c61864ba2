"""Fixtures: a software GPU for every test, and guests on it."""

from __future__ import annotations

import glob
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator, Sequence

import pytest

from shim.policy_node import PolicyNode
from support import compiled
from support.gpu import guest
from support.softgpu.softgpu_clock import clock_options
from vcuda_oci.pages.layout import LimitsGpu

CLIENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients")
HEADERS = sorted(glob.glob(f"{CLIENTS}/*/*.h"))
LIBRARIES = os.path.join("usr", "lib", "x86_64-linux-gnu")


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make bench` prints how exact shares are; a test that compares within 2 points needs less."""
    monkeypatch.setattr("support.shares.judge.WINDOW_S", 5.0)
    monkeypatch.setattr("support.shares.judge.KERNELS", 80)


@pytest.fixture(scope="session")
def built() -> None:
    missing = [path for path in (guest.SHIM, guest.WORKLOAD) if not os.path.exists(path)]
    assert not missing, f"{missing} not built; run 'make build'"


class DriverRoot:
    """A host with a software GPU."""

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def uuids(self) -> list[str]:
        folder = os.path.join(self.path, "proc", "driver", "nvidia", "gpus")
        found = []
        for bus_id in sorted(os.listdir(folder)):
            with open(os.path.join(folder, bus_id, "information"), encoding="utf-8") as lines:
                fields = dict(line.split(":", 1) for line in lines if ":" in line)
            found.append(fields["GPU UUID"].strip())
        return found


@pytest.fixture
def new_host(
    built: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., DriverRoot]]:
    """Makes a host with two GPUs of 16 GiB, and more options of `softgpu create`."""
    clock = clock_options(request)
    tool = os.path.join(guest.BUILD, "softgpu", "softgpu")
    roots: list[str] = []

    def make(*options: str) -> DriverRoot:
        roots.append(str(tmp_path_factory.mktemp("host") / "root"))
        command = [tool, "create", roots[-1], "--gpus", "2", "--memory", "16GiB", *clock, *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return DriverRoot(roots[-1])

    yield make
    for root in roots:
        subprocess.run([tool, "destroy", root], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def host_options() -> list[str]:
    """More options of `softgpu create`, for a module to choose."""
    return []


@pytest.fixture
def host(new_host: Callable[..., DriverRoot], host_options: list[str]) -> DriverRoot:
    return new_host(*host_options)


@pytest.fixture
def node(built: None, host: DriverRoot, tmp_path: pathlib.Path) -> Iterator[PolicyNode]:
    """A node with containers that have policies; no keeper and no agent runs."""
    made = PolicyNode(str(tmp_path / "node"), host.path)
    yield made
    made.close()


@pytest.fixture
def new_guest(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., guest.Guest]:
    """A container with slices of the test's host, or of ON."""

    def make(
        *gpus: LimitsGpu,
        on: DriverRoot | None = None,
        meter_copies: bool = False,
        calls_ask: bool = False,
        shim: str = guest.SHIM,
    ) -> guest.Guest:
        folder = str(tmp_path_factory.mktemp("guest"))
        root = on or request.getfixturevalue("host")
        return guest.Guest(folder, root.path, gpus, shim, meter_copies, calls_ask)

    return make


class Clients:
    """Compiles clients/*/NAME.c against the shim, as a program linked with -lcuda is."""

    def __init__(
        self, folder: str, flags: Sequence[str] = (), cc: str = "gcc", shim: str = guest.SHIM
    ) -> None:
        self.folder, self.flags, self.cc, self.shim = folder, flags, cc, shim
        site = os.path.join(guest.BUILD, "venv", "lib")
        python = next(name for name in sorted(os.listdir(site)) if name.startswith("python3"))
        self.headers = os.path.join(site, python, "site-packages", "nvidia", "cu13", "include")

    def __call__(self, name: str) -> str:
        program = os.path.join(self.folder, name)
        if not os.path.exists(program):
            command = [self.cc, "-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-pthread"]
            command += self.flags
            [source] = glob.glob(f"{CLIENTS}/*/{name}.c")
            command += ["-I", CLIENTS, "-isystem", self.headers, source]
            # loads opens the libraries itself.
            linked = [] if name == "loads" else [self.shim]
            compiled.make(program, [*command, *linked, "-ldl"], [source, *HEADERS, *linked])
        return program


@pytest.fixture(scope="session")
def client(built: None, tmp_path_factory: pytest.TempPathFactory) -> Clients:
    return Clients(str(tmp_path_factory.mktemp("clients")))


MOCK_SOURCES = [f"{CLIENTS}/mock/mock_{part}.c" for part in ("cuda", "launch", "memory")]
MOCK_UUID = "GPU-" + "-".join(["01010101", "0101", "0101", "0101", "010101010101"])


@pytest.fixture
def new_mock_guest(
    built: None, tmp_path: pathlib.Path, client: Clients
) -> Callable[..., guest.Guest]:
    """A guest on the mock driver, with a slice of so many bytes, on the shim at a path.

    cc: the compiler of the machine that the shim is for.
    """

    def make(
        memory_bytes: int, shim: str = guest.SHIM, cc: str = "gcc", calls_ask: bool = False
    ) -> guest.Guest:
        libraries = tmp_path / "root" / LIBRARIES
        libraries.mkdir(parents=True)
        command = [cc, "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
        command += ["-I", CLIENTS, "-isystem", client.headers]
        driver, made_of = str(libraries / "libcuda.so.1"), [*MOCK_SOURCES, *HEADERS]
        compiled.make(driver, [*command, *MOCK_SOURCES], made_of)
        gpu = guest.share(MOCK_UUID, memory_bytes)
        folder, root = str(tmp_path / "guest"), str(tmp_path / "root")
        return guest.Guest(folder, root, [gpu], shim, calls_ask=calls_ask)

    return make
