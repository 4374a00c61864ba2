"""A container with hooks in its config.json gets the same edits as one of the wrapper."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.engines.base import Engine, Wanted
from support.engines.low_level import LowLevel
from support.product import MIB, Product
from support.wrapper.entry_points import (
    FILL,
    FILLED,
    KINDS,
    LIMIT,
    LOW_LEVEL,
    Hooked,
    user_namespace,
)

# What a program can find out about its surroundings, numbers of mounts and inodes apart.
LOOK = r"""
  ls -ln /dev | sed 's/  */ /g' | cut -d' ' -f1,3-6,10- | grep -v -e ' pts' -e ptmx
  while read -r _ _ _ root place options _; do
    case $place in
      /|/proc*|/sys*|/dev*) ;;
      *) echo "$place $root ${options%%,relatime}" ;;
    esac
  done </proc/self/mountinfo | sort
  mknod /tmp/other c 195 1
  open-node /dev/nvidia0 /dev/nvidiactl /tmp/other
  (echo no >/usr/local/vcuda/limits) 2>/dev/null || echo 'limits: read-only'
  vcuda-workload info
  vcuda-workload alloc --chunk 1073741824
  nvidia-smi -L
  env | sort
"""


@pytest.fixture(params=LOW_LEVEL)
def hooked(
    request: pytest.FixtureRequest, start_engine: Callable[[str], Engine], product: Product
) -> Iterator[Hooked]:
    engine = start_engine(request.param)
    assert isinstance(engine, LowLevel)
    with product.on(engine), engine.using(engine.plain_runtime()):
        yield Hooked(engine, product)
    assert product.allocations(engine) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_program_sees_is_what_it_sees_behind_the_wrapper(
    hooked: Hooked, container: str, kind: str
) -> None:
    asked = hooked.with_share(container, "sh", "-c", LOOK)
    with hooked.engine.using(hooked.product.runtime):
        behind_wrapper = hooked.engine._run(asked)
    assert behind_wrapper.rc == 0, behind_wrapper.stderr
    by_hook = hooked.run(asked, kind)
    assert by_hook.rc == 0, by_hook.stderr
    assert by_hook.stdout == behind_wrapper.stdout
    assert f'"exact_bytes":{LIMIT}' in by_hook.stdout.replace(" ", "")
    assert "limits: read-only" in by_hook.stdout
    assert re.search(r"^/dev/nvidia0: (ENXIO|ok)$", by_hook.stdout, re.M)
    assert re.search(r"^/tmp/other: EPERM$", by_hook.stdout, re.M)


@pytest.mark.parametrize("hooked", ["runc-v2", "crun-v2"], indirect=True)
def test_rules_of_the_containers_systemd_scope_open_its_gpu_too(
    hooked: Hooked, container: str
) -> None:
    """As crun 1.21 has it: systemd's device program is the scope's, the container is below."""
    engine, scope = hooked.engine, f"test-{container}.scope"
    assert engine.start(scope, ["sleep", "1000"]).rc == 0  # its runtime attaches a program there

    def below_it(config: dict[str, Any], bundle: str) -> None:
        config["linux"]["cgroupsPath"] = f"{engine.host.cgroup_parent}/{scope}/container"

    by_hook = hooked.run(hooked.with_share(container, *FILL), "createRuntime", change=below_it)
    engine.delete(scope)
    assert by_hook.rc == 0, by_hook.stderr
    assert json.loads(by_hook.stdout) == FILLED


def test_three_hooks_and_the_wrapper_together_give_one_share(
    hooked: Hooked, container: str
) -> None:
    asked = hooked.with_share(container, "sh", "-c", LOOK)
    once = hooked.run(asked, "createRuntime")
    assert once.rc == 0, once.stderr
    assert hooked.run(asked, *KINDS) == once
    with hooked.engine.using(hooked.product.runtime):
        assert hooked.run(asked, *KINDS) == once


def test_container_without_a_request_is_unchanged(hooked: Hooked, container: str) -> None:
    script = "ls /dev /usr/local; cat /proc/self/mountinfo | wc -l"
    wanted = Wanted(container, ["sh", "-c", script])
    assert hooked.run(wanted, *KINDS) == hooked.run(wanted)


def test_a_read_only_root_gets_its_share(hooked: Hooked, container: str) -> None:
    def read_only(config: dict[str, Any], bundle: str) -> None:
        config["root"]["readonly"] = True

    result = hooked.run(hooked.with_share(container, *FILL), "createRuntime", change=read_only)
    assert result.rc == 0, result.stderr
    assert json.loads(result.stdout)["exact_bytes"] == LIMIT


@pytest.mark.parametrize("kind", ["prestart", "createRuntime"])
@pytest.mark.parametrize("hooked", ["runc-v1"], indirect=True)  # here v2 has device rules only
def test_the_hook_is_not_held_by_the_containers_own_limits(
    hooked: Hooked, container: str, kind: str
) -> None:
    def tiny(config: dict[str, Any], bundle: str) -> None:
        config["linux"]["resources"]["memory"] = {"limit": 8 * MIB}
        config["linux"]["resources"]["pids"] = {"limit": 3}

    asked = hooked.with_share(container, "open-node", "/dev/nvidia0")
    result = hooked.run(asked, kind, change=tiny)
    assert re.match(r"/dev/nvidia0: (ENXIO|ok)", result.stdout), result.stderr


def test_a_container_in_a_user_namespace_gets_its_share(hooked: Hooked, container: str) -> None:
    script = "vcuda-workload alloc --chunk 1073741824; open-node /dev/nvidia0 /dev/nvidia1"
    asked = hooked.with_share(container, "sh", "-c", script)
    result = hooked.run(asked, "createRuntime", change=user_namespace)
    assert result.rc == 0, result.stderr
    assert f'"exact_bytes":{LIMIT}' in result.stdout.replace(" ", "")
    assert re.search(r"^/dev/nvidia0: (ENXIO|ok)$", result.stdout, re.M)
    assert re.search(r"^/dev/nvidia1: ENOENT$", result.stdout, re.M)


def test_config_with_all_gpus_gets_only_the_granted_one(hooked: Hooked, container: str) -> None:
    def every_gpu(config: dict[str, Any], bundle: str) -> None:
        for minor in (0, 1):
            number = {"type": "c", "major": 195, "minor": minor}
            path = f"/dev/nvidia{minor}"
            config["linux"].setdefault("devices", []).append({"path": path, **number})
            rule = {"allow": True, "access": "rwm", **number}
            config["linux"]["resources"]["devices"].append(rule)

    script = "ls /dev | grep nvidia; mknod /tmp/1 c 195 1; open-node /dev/nvidia0 /tmp/1"
    asked = hooked.with_share(container, "sh", "-c", script)
    result = hooked.run(asked, "createRuntime", change=every_gpu)
    assert result.rc == 0, result.stderr
    answers = result.stdout.splitlines()
    assert "nvidia0" in answers and "nvidia1" not in answers
    assert answers[-2] in ("/dev/nvidia0: ENXIO", "/dev/nvidia0: ok")
    assert answers[-1] == "/tmp/1: EPERM"


def test_what_does_not_fit_is_refused_in_one_line_and_leaves_nothing(
    hooked: Hooked, container: str, scratch: str
) -> None:
    words = {"vcuda.io/core": "30", "vcuda.io/memory": "9999GiB"}
    wanted = Wanted(container, ["echo", "started"], annotations=words)
    log = os.path.join(scratch, "log")
    result = hooked.run(wanted, "createRuntime", log=log)
    assert result.rc != 0
    assert result.stdout == ""
    # crun throws away what a hook writes, so the hook finds the runtime's own log and stderr.
    pattern = rf"vcuda-container-hook: placement: .*; ask for less.* \(allocation {container}\)"
    with open(log) as lines:
        assert re.search(pattern, lines.read())
    assert re.search(pattern, result.stderr)


@pytest.mark.parametrize("place", ["usr/local", "usr/bin", "run"])
def test_links_of_the_image_lead_nowhere_on_the_host(
    hooked: Hooked, container: str, scratch: str, place: str
) -> None:
    """What is mounted below these is laid into the image's own folder of that name."""
    trap = os.path.join(scratch, "trap")
    os.mkdir(trap)

    def linked(config: dict[str, Any], bundle: str) -> None:
        path = os.path.join(bundle, "rootfs", place)
        if os.path.isdir(path):
            os.rename(path, path + ".image")
        os.symlink(trap, path)
        # The image's own folder under the name that the link has inside.
        inside = f"{bundle}/rootfs{trap}"
        os.makedirs(os.path.dirname(inside))
        if os.path.isdir(path + ".image"):
            os.rename(path + ".image", inside)
        else:
            os.mkdir(inside)

    asked = hooked.with_share(container, *FILL)
    result = hooked.run(asked, "createRuntime", change=linked)
    assert os.listdir(trap) == []
    assert result.rc == 0, result.stderr
    assert json.loads(result.stdout)["exact_bytes"] == LIMIT


def call_by_hand(hooked: Hooked, state: str) -> tuple[int, str]:
    words = [hooked.program, "--config", hooked.product.config, "createRuntime"]
    result = hooked.engine.host.run(words, stdin=state)
    assert result.stdout == ""
    return result.rc, result.stderr


@pytest.mark.parametrize("pid", [0, -1, 1, 4_000_000, "7", None])
def test_a_pid_that_is_no_containers_is_one_line(
    hooked: Hooked, container: str, pid: object
) -> None:
    bundle = hooked.engine.make_bundle(hooked.with_share(container, "true"))
    try:
        state = {"ociVersion": "1.0.2", "id": container, "pid": pid, "bundle": bundle}
        status, line = call_by_hand(hooked, json.dumps(state))
    finally:
        hooked.engine.delete(container)
    assert status == 1
    assert line.startswith("vcuda-container-hook: standard input: its process has ended")
    assert line.count("\n") == 1


def test_a_process_that_is_in_no_container_is_one_line_and_no_mount(
    hooked: Hooked, container: str, scratch: str
) -> None:
    """The hook's caller looks like a runtime, and the state names the caller itself."""
    bundle = hooked.engine.make_bundle(hooked.with_share(container, "true"))
    state = f'{{"id": "{container}", "pid": PID, "bundle": "{bundle}"}}'
    with open(os.path.join(scratch, "create"), "w") as script:
        script.write(
            f"""cat /proc/self/mountinfo >before
            sed "s/PID/$$/" <<'EOF' | {hooked.program} --config {hooked.product.config} prestart
            {state}
            """.replace("  ", "")
            + f"EOF\ncat /proc/self/mountinfo >after; rm -r {bundle}; cmp before after"
        )
    result = hooked.engine.host.run(["sh", "-c", f"cd {scratch} && exec sh create"])
    assert result.rc == 0, result.stderr
    assert result.stderr.startswith("vcuda-container-hook: container state: the process is in no m")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["prestart", "createRuntime"])
def test_a_container_that_dies_under_the_hook_leaves_no_share(
    hooked: Hooked, container: str, kind: str
) -> None:
    def killed_first(config: dict[str, Any], bundle: str) -> None:
        script = "kill -9 $(sed 's/.*\"pid\": *\\([0-9]*\\).*/\\1/')"
        killer = {"path": "/bin/sh", "args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin"]}
        config["hooks"][kind].insert(0, killer)

    result = hooked.run(hooked.with_share(container, "echo", "started"), kind, change=killed_first)
    assert result.rc != 0
    assert result.stdout == ""
