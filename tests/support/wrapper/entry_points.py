"""The entry points of a low-level runtime's container: the wrapper, and hooks in config.json."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from support.engines.base import Result, Wanted
from support.engines.low_level import LowLevel
from support.host import cgroups
from support.product import MIB, Product, asking

LOW_LEVEL = ["runc-v1", "runc-v2", "crun-v2"]
KINDS = ["prestart", "createRuntime", "createContainer"]
WRAPPER = "wrapper"
# Each runtime by the wrapper and by the usual kind of hook.
MAIN_ENTRY_POINTS = [f"{name}-{kind}" for name in LOW_LEVEL for kind in (WRAPPER, "createRuntime")]
LIMIT = 1024 * MIB
FILL = ["vcuda-workload", "alloc", "--chunk", str(LIMIT)]
# What FILL prints in a container that has its share and its limit.
FILLED = {"allocated_bytes": LIMIT, "exact_bytes": LIMIT, "error": "CUDA_ERROR_OUT_OF_MEMORY"}

ROOT_ID = 200_000  # root of a user namespace, as the host sees it

Change = Callable[[dict[str, Any], str], None]


def unchanged(config: dict[str, Any], bundle: str) -> None:
    """Leave config.json unchanged."""


def run_changed(
    engine: LowLevel, wanted: Wanted, change: Change, log: str, options: Sequence[str] = (),
    leak: str = "",
) -> Result:  # fmt: skip
    """Run a container to its end, from a bundle changed by `change`, and delete it.

    options: options of the runtime's verb `run`. leak: shell commands that run before the shell
    becomes the runtime.
    """
    bundle = engine.make_bundle(wanted)
    path = os.path.join(bundle, "config.json")
    with open(path) as file:
        config = json.load(file)
    change(config, bundle)
    with open(path, "w") as file:
        json.dump(config, file)
    try:
        words = ["--log", log, "run", *options, "--bundle", bundle, wanted.container_id]
        shell = ["sh", "-c", leak + '; exec "$@"', "sh"] if leak else []
        return engine.host.run([*shell, *engine.command(*words)], env=engine.environment())
    finally:
        engine.delete(wanted.container_id)


class Hooked:
    """A low-level runtime; hooks in config.json are the only entry point of vcuda."""

    def __init__(self, engine: LowLevel, product: Product) -> None:
        self.engine, self.product = engine, product
        self.program = os.path.join(product.prefix, "bin/vcuda-container-hook")

    def with_share(self, container: str, *args: str) -> Wanted:
        asked = asking(self.engine, core=30, memory_bytes=LIMIT, gpu="0")
        return Wanted(container, args, annotations=asked["annotations"])

    def hook(self, kind: str) -> dict[str, Any]:
        """A hook's entry of config.json, as docs/hook.md shows it."""
        words = [self.program, "--config", self.product.config, kind]
        return {"path": self.program, "args": words, "env": ["PATH=/usr/bin:/bin"]}

    def run(
        self, wanted: Wanted, *kinds: str, change: Change = unchanged, log: str = "/dev/null",
        **more: Any,
    ) -> Result:  # fmt: skip
        def with_hooks(config: dict[str, Any], bundle: str) -> None:
            for kind in (*kinds, "poststop"):
                config.setdefault("hooks", {}).setdefault(kind, []).append(self.hook(kind))
            change(config, bundle)

        return run_changed(self.engine, wanted, with_hooks, log, **more)


class EntryPoint:
    """One entry point on one runtime; `kind` is WRAPPER or a hook's kind."""

    def __init__(self, engine: LowLevel, product: Product, kind: str) -> None:
        self.engine, self.product, self.kind = engine, product, kind
        self._hooked = Hooked(engine, product)
        self.with_share = self._hooked.with_share

    def run(
        self, wanted: Wanted, change: Change = unchanged, log: str = "/dev/null", **more: Any
    ) -> Result:
        """Run a container through this entry point to its end; `more` as in `run_changed`."""
        if self.kind != WRAPPER:
            return self._hooked.run(wanted, self.kind, change=change, log=log, **more)
        with self.engine.using(self.product.runtime):
            return run_changed(self.engine, wanted, change, log, **more)

    def plain(self, wanted: Wanted, change: Change = unchanged, **more: Any) -> Result:
        """Run the same bundle by the runtime alone, without vcuda."""
        return run_changed(self.engine, wanted, change, "/dev/null", **more)

    @contextlib.contextmanager
    def holding(self, container: str, *args: str) -> Iterator[None]:
        """While the block runs, another container, started by the wrapper, holds a share."""
        with self.engine.using(self.product.runtime):
            started = self.engine._start(self.with_share(container, *(args or ("sleep", "100"))))
        assert started.rc == 0, started.stderr
        try:
            yield
        finally:
            with self.engine.using(self.product.runtime):
                self.engine.delete(container)

    def sweep(self) -> None:
        """Release the shares of dead containers: crun runs no poststop hook for a failed create.

        The command is not started where there is nothing to release.
        """
        if not self._of_state():
            return
        command = os.path.join(self.product.prefix, "bin/vcuda")
        words = [command, "--config", self.product.config, "release", "--all-dead"]
        self.engine.host.check(words)

    def _of_state(self) -> list[str]:
        """Paths of vcuda's records and containers' folders on the engine's host."""
        state, root = self.product.state_dir(self.engine), f"/proc/{self.engine.host.pid}/root"
        return [f"{state}/{name}/{left}" for name in ("allocations", "containers")
                if os.path.isdir(f"{root}{state}/{name}")
                for left in os.listdir(f"{root}{state}/{name}")]  # fmt: skip

    def leftovers(self, container: str) -> Sequence[str]:
        """vcuda's files, mounts and cgroups that still exist for an ended container."""
        found = self._of_state()
        with open(f"/proc/{self.engine.host.pid}/mountinfo") as mounts:
            found += [line for line in mounts if container in line]
        return found + cgroups.of_container(container)


def filled(result: Result) -> dict[str, Any]:
    """What FILL printed, parsed; the whole result if FILL failed."""
    try:
        printed: dict[str, Any] = json.loads(result.stdout)
        return printed
    except ValueError:
        return vars(result)


def user_namespace(config: dict[str, Any], bundle: str) -> None:
    """Add a user namespace to config.json: root inside is ROOT_ID outside and owns the rootfs."""
    config["linux"]["namespaces"].append({"type": "user"})
    ids = [{"containerID": 0, "hostID": ROOT_ID, "size": 65536}]
    config["linux"]["uidMappings"] = config["linux"]["gidMappings"] = ids
    subprocess.run(["chown", "-R", f"{ROOT_ID}:{ROOT_ID}", f"{bundle}/rootfs"], check=True)
    folder = bundle
    while folder != "/tmp":
        os.chmod(folder, 0o755)
        folder = os.path.dirname(folder)
