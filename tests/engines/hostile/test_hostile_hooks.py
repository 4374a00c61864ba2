"""Hostile images and broken neighbours do not affect vcuda's hooks or other hooks."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import Any

import pytest

from support import compiled
from support.engines.base import Wanted
from support.wrapper.entry_points import (
    FILL,
    FILLED,
    KINDS,
    LOW_LEVEL,
    MAIN_ENTRY_POINTS,
    WRAPPER,
    Change,
    EntryPoint,
    Hooked,
    filled,
)

EVERY_KIND = [*KINDS, "startContainer", "poststart", "poststop"]
FAILING = {"path": "/bin/sh", "args": ["sh", "-c", "exit 7"], "env": ["PATH=/usr/bin:/bin"]}


def our_hooks(config: dict[str, Any], entry_point: EntryPoint) -> list[dict[str, Any]]:
    found = [hook for hooks in config.get("hooks", {}).values() for hook in hooks]
    return [hook for hook in found if hook["path"].startswith(entry_point.product.prefix)]


@pytest.fixture(scope="module")
def marking(session_folder: str) -> tuple[str, str]:
    """(a library that leaves a mark wherever it is loaded, the mark's path)."""
    folder = tempfile.mkdtemp(dir=session_folder)
    mark = os.path.join(folder, "mark")
    return compiled.library(folder, "preload_mark", f'-DMARK="{mark}"'), mark


# The wrapper writes its own hooks' variables.
@pytest.mark.parametrize(
    ("entry_point", "env"),
    [
        (f"{name}-{kind}", env)
        for name in LOW_LEVEL
        for kind in (WRAPPER, *KINDS)
        for env in ("as documented", "forgotten", "empty")
        if kind != WRAPPER or env == "as documented"
    ],
    indirect=["entry_point"],
)
def test_the_images_variables_reach_no_hook(
    entry_point: EntryPoint, container: str, scratch: str, marking: tuple[str, str], env: str
) -> None:
    """The library leaves its mark in the container."""
    library, mark = marking
    assert not os.path.exists(mark)
    with open(os.path.join(scratch, "sitecustomize.py"), "w") as file:
        file.write(f"open({mark!r}, 'a').write('python\\n')\n")

    def hostile(config: dict[str, Any], bundle: str) -> None:
        shutil.copy(library, f"{bundle}/rootfs/evil.so")
        shutil.copy(f"{scratch}/sitecustomize.py", f"{bundle}/rootfs/sitecustomize.py")
        # A host path stands for what an image finds by luck; the others are always right.
        preload = f"/proc/self/cwd/evil.so /evil.so {bundle}/rootfs/evil.so {library}"
        config["process"]["env"] += [
            f"LD_PRELOAD={preload}", f"LD_AUDIT={library}", f"LD_LIBRARY_PATH=/:{scratch}",
            f"PYTHONPATH=/:/proc/self/cwd:{scratch}", f"PYTHONSTARTUP={scratch}/sitecustomize.py",
            "PYTHONHOME=/nowhere", "PYTHONINSPECT=1", "PATH=/evil:/usr/bin:/bin",
        ]  # fmt: skip
        for hook in our_hooks(config, entry_point):
            if env != "as documented":
                hook.pop("env")
            if env == "empty":
                hook["env"] = []

    os.symlink("/", f"{scratch}/evil")
    # In the container the mark's folder is another: only what runs outside leaves one on the host.
    result = entry_point.run(entry_point.with_share(container, *FILL), hostile)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(mark)  # the next case needs it away
        pytest.fail("a hook loaded the image's library")
    assert filled(result) == FILLED


def broken(kind: str, first: bool) -> Change:
    def change(config: dict[str, Any], bundle: str) -> None:
        hooks = config.setdefault("hooks", {}).setdefault(kind, [])
        hooks.insert(0 if first else len(hooks), FAILING)

    return change


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("entry_point", MAIN_ENTRY_POINTS, indirect=True)
def test_a_failing_hook_of_each_kind_costs_no_container_its_share(
    entry_point: EntryPoint, container: str, kind: str
) -> None:
    """crun runs no poststop for what was never created, and runc none behind one that fails.

    The records that then stay are taken by the next container that needs the room. Behind the
    wrapper runc leaves none.
    """
    state = entry_point.product.state_dir(entry_point.engine)
    leaves_none = (entry_point.engine.low_level, entry_point.kind) == ("runc", WRAPPER)
    for first in (True, False):
        failing = f"{container}-{'before' if first else 'after'}"
        failed = entry_point.run(entry_point.with_share(failing, "true"), broken(kind, first))
        # What fails after the start, or the end, is the runtime's to judge: runc and crun differ.
        assert failed.rc != 0 or kind in ("poststart", "poststop"), failing
        left = entry_point.leftovers(failing)
        assert [one for one in left if leaves_none or not one.startswith(state)] == [], failing
    whole = {"vcuda.io/core": "100", "vcuda.io/gpu": "0"}
    following = Wanted(container + "-2", ["echo", "has it"], annotations=whole)
    assert entry_point.run(following).stdout == "has it\n"
    assert entry_point.leftovers(container) == []


def test_poststop_twice_is_once_and_another_containers_never(
    entry_point: EntryPoint, container: str
) -> None:
    """A runtime that calls it again, and one that calls it for an id of the same beginning."""
    other = f'{{"id": "{container}-other", "pid": 0, "bundle": "/"}}'
    hook = Hooked(entry_point.engine, entry_point.product).hook("poststop")

    def again(config: dict[str, Any], bundle: str) -> None:
        hooks = config.setdefault("hooks", {}).setdefault("poststop", [])
        hooks[:0] = [hook, hook]

    with entry_point.holding(container + "-other"):
        result = entry_point.run(entry_point.with_share(container, *FILL), again)
        assert filled(result) == FILLED
        (kept,) = entry_point.product.allocations(entry_point.engine)
        assert kept["id"] == container + "-other"
    for _ in range(2):
        assert entry_point.engine.host.run(hook["args"], stdin=other).rc == 0
    assert entry_point.leftovers(container) == []
