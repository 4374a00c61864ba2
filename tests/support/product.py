"""Install the product into a folder of the test session, with software GPUs."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from support.engines.base import Engine
from support.engines.cri import Cri
from support.engines.docker import Docker
from support.host.private_host import PATH

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOFTGPU = os.path.join(REPOSITORY, "build/softgpu/softgpu")
SHIPPED_CONFIG = os.path.join(REPOSITORY, "packaging/config.toml")
MIB = 1024 * 1024
MEMORY_UNIT = 256 * MIB


class RunOptions(TypedDict, total=False):
    """Keyword arguments of Engine.run and Engine.start."""

    env: Mapping[str, str]
    annotations: Mapping[str, str]


class Product:
    """prefix: the folder of the programs. config: the settings file that they read.
    options: options of `softgpu create`.
    """

    def __init__(self, folder: str, gpus: int = 2, *options: str) -> None:
        self.prefix = os.path.join(folder, "usr")
        sysconf = os.path.join(folder, "etc")
        self.config = os.path.join(sysconf, "vcuda/config.toml")
        self.runtime = os.path.join(self.prefix, "bin/vcuda-container-runtime")
        self.driver_root = os.path.join(folder, "driver")
        install(self.prefix, sysconf)
        self.create(gpus, *options)

    def with_gpus(self, driver_root: str, gpus: int, *options: str) -> Product:
        """The same installation and settings file with GPUs of its own in this folder.

        Only one of the two may be in use at a time.
        """
        other = copy.copy(self)
        other.driver_root = driver_root
        other.create(gpus, *options)
        return other

    def create(self, gpus: int, *options: str) -> None:
        """Create the GPUs, or other ones in their place, which nothing may use then."""
        _run(SOFTGPU, "create", self.driver_root, "--force", "--gpus", str(gpus), *options)

    def order(self, command: str, *words: str) -> None:
        """Run `softgpu mig`, `fail` or `heal`."""
        _run(SOFTGPU, command, self.driver_root, *words)

    def times(self) -> Any:
        """What `softgpu time` says of the first GPU."""
        told = _run(SOFTGPU, "time", "--json", self.driver_root)
        return json.loads(told)["gpus"][0]

    def processes(self) -> list[dict[str, Any]]:
        """The live processes that use the first GPU."""
        found: list[dict[str, Any]] = self.times()["processes"]
        return found

    def configure(self, engine: Engine, **settings: str) -> None:
        """Write config.toml for one engine, with the state folder in the engine's own folder."""
        values: dict[str, object] = {
            "runtime": engine.plain_runtime(),
            "state-dir": self.state_dir(engine),
            "driver-root": self.driver_root,
            **{key.replace("_", "-"): value for key, value in settings.items()},
            "listen": "",  # agents of several tests run at once
        }
        os.makedirs(os.path.dirname(self.config), exist_ok=True)
        shutil.copyfile(SHIPPED_CONFIG, self.config)
        with open(self.config, "a") as file:
            # JSON's strings and lists are TOML's too.
            file.writelines(f"{key} = {json.dumps(value)}\n" for key, value in values.items())

    @contextlib.contextmanager
    def on(self, engine: Engine, **settings: str) -> Iterator[None]:
        """While the block runs, the engine's low-level runtime is vcuda-container-runtime.

        The ledger is empty at first, as after a reboot.
        """
        # Only the content is removed: the folder may be a mount on the engine's host.
        folder = self.state_dir(engine)
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            path = os.path.join(folder, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        self.configure(engine, **settings)
        with engine.using(self.runtime):
            yield

    def state_dir(self, engine: Engine) -> str:
        return engine.host.path("vcuda")

    def allocations(self, engine: Engine) -> list[dict[str, Any]]:
        """The ledger's records, read from their files."""
        folder = os.path.join(self.state_dir(engine), "allocations")
        records = []
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in (name for name in names if name.endswith(".json")):
            with open(os.path.join(folder, name)) as file:
                records.append(json.load(file))
        return records


def asking(
    engine: Engine, *, core: int, memory_bytes: int | None = None, gpu: str = "", **terms: str
) -> RunOptions:
    """Keyword arguments of Engine.run that request a share, as this engine's users do.

    Under Kubernetes the kubelet passes the annotations of Allocate, which name no GPU.
    terms: the policy and its parameters.
    """
    if isinstance(engine, Cri):
        assert not gpu, "a pod cannot choose its GPU so"
        units = {"vcuda.io/request.vcuda-core": str(core)}
        if memory_bytes is not None:
            units["vcuda.io/request.vcuda-memory"] = str(memory_bytes // MEMORY_UNIT)
        settings = {"vcuda.io/" + key.replace("_", "-"): value for key, value in terms.items()}
        return {"annotations": {**units, **settings}}
    words = {"core": str(core), **terms}
    if memory_bytes is not None:
        words["memory"] = str(memory_bytes)
    if gpu:
        words["gpu"] = gpu
    if isinstance(engine, Docker):
        return {"env": {"VCUDA_" + key.upper(): value for key, value in words.items()}}
    settings = {key.replace("_", "-"): value for key, value in words.items()}
    return {"annotations": {"vcuda.io/" + key: value for key, value in settings.items()}}


def install(prefix: str, sysconf: str, units: str = "") -> None:
    places = [f"PREFIX={prefix}", f"SYSCONFDIR={sysconf}", f"UNITDIR={units}"]
    _run("make", "-C", REPOSITORY, "install", *places)


def missing() -> str | None:
    """Why the product cannot be installed, or None if it is built."""
    needed = [SOFTGPU, os.path.join(REPOSITORY, "build/lib/libvcuda.so.1")]
    absent = [os.path.relpath(path, REPOSITORY) for path in needed if not os.path.exists(path)]
    return f"{', '.join(absent)} not built; run 'make build'" if absent else None


def _run(*argv: str) -> str:
    # Variables of a `make` that runs these tests must not reach the `make` below.
    env = {
        key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        argv,
        env={**env, "PATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout
