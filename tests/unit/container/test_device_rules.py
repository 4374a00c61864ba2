"""Device rules of an existing container, where no cgroup is needed."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.files import write
from vcuda_hook.hooks import device_rules


def test_a_container_that_is_given_no_node_may_be_in_no_cgroup(tmp_path: Any) -> None:
    """Without root there is often none that has device rules, or none that may be changed."""
    write(f"{tmp_path}/cgroup", "0::/elsewhere\n")
    process = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    try:
        assert device_rules.change(process, "c", [], []) is None
    finally:
        os.close(process)


@pytest.mark.parametrize(
    ("folder", "ours", "changed"),
    [
        ("/cg/m.slice/crio-c.scope/container", "/cg/crio.service", 2),
        ("/cg/m.slice/crio-c.scope", "/cg/crio.service", 1),
        ("/cg/m.slice/crio-c.scope/a/b", "/cg/crio.service", 3),
        ("/cg/pod.slice/c", "/cg/crio.service", 1),
        ("/cg/m.slice/crio-d.scope/container", "/cg/crio.service", 1),
        ("/cg/user.slice/session-c.scope/c", "/cg/user.slice/session-c.scope", 1),
        ("/cg/user.slice/session-c.scope/c", "/cg/user.slice/session-c.scope/engine", 1),
    ],
)
def test_rules_change_up_to_the_containers_own_scope_and_no_further(
    folder: str, ours: str, changed: int
) -> None:
    above = [folder.rsplit("/", up)[0] if up else folder for up in range(changed)]
    assert device_rules.up_to_scope(folder, "c", ours) == above


@pytest.mark.parametrize("where", ["the root", "ours", "outside of our cgroup namespace"])
def test_a_cgroup_that_others_are_in_is_never_the_containers_own(tmp_path: Any, where: str) -> None:
    """As of one that has ended, and of one that was started without a cgroup."""
    with open("/proc/self/cgroup") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    ours = {(number, names): path for number, names, path in lines}
    for each, path in ours.items():
        ours[each] = {"the root": "/", "ours": path}.get(where, "/../elsewhere")
    text = "".join(f"{number}:{names}:{path}\n" for (number, names), path in ours.items())
    write(f"{tmp_path}/cgroup", text)
    process = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError, match="cgroup"):
            device_rules.own_cgroup(process)
    finally:
        os.close(process)
