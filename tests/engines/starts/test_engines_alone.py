"""Every engine runs containers on this machine, with its plain low-level runtime."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from support.engines import ENGINES
from support.engines.base import Engine, Result
from support.engines.docker import Docker
from support.wrapper.runtime_recorder import Recorder


def test_each_engine_runs_in_both_worlds_of_cgroups() -> None:
    worlds: dict[str, set[str]] = {}
    for name, engine in ENGINES.items():
        worlds.setdefault(re.sub("-v[12]$", "", name), set()).add(engine.cgroup_world)
    both = {"host", "v2"}
    assert worlds == {
        "runc": both,
        "crun": {"v2"},  # 1.8 refuses v1 beside v2
        "docker": both,
        "containerd-ctr": both,
        "containerd-cri": both,
        "crio": both,
        "podman": both,
    }


def test_a_container_gets_its_env_and_its_output_and_exit_code_come_back(
    engine: Engine, container: str
) -> None:
    script = 'echo "$WORD"; exit 7'
    result = engine.run(container, ["sh", "-c", script], env={"WORD": "two words"})
    assert (result.rc, result.stdout) == (7, "two words\n")


def test_a_started_container_can_be_entered_killed_and_waited_for(
    engine: Engine, container: str
) -> None:
    started = engine.start(container, ["sh", "-c", "echo up; touch /mine; sleep 100"])
    try:
        assert started.rc == 0, started.stderr
        script = "until [ -e /mine ]; do sleep 0.01; done; ls /mine; exit 3"
        assert engine.exec(container, ["sh", "-c", script]) == Result(3, "/mine\n", "")
        engine.kill(container)
        assert engine.wait(container) == 137
        assert engine.logs(container) == "up\n"
    finally:
        engine.delete(container)


def test_the_engine_uses_the_runtime_that_it_was_given(
    engine: Engine, container: str, record: Callable[[str], Recorder]
) -> None:
    recorder = record(engine.plain_runtime())
    with engine.using(recorder.path):
        assert engine.run(container, ["echo", "hello"]).stdout == "hello\n"
    verbs = {word for call in recorder.calls() for word in call}
    assert verbs & {"create", "run"}
    assert ["echo", "hello"] in [config["process"]["args"] for config in recorder.configs()]


def test_a_runtime_that_fails_fails_the_container(
    engine: Engine, container: str, scratch: str
) -> None:
    broken = os.path.join(scratch, "runtime")
    with open(broken, "w") as script:
        script.write("#!/bin/sh\nexit 1\n")
    os.chmod(broken, 0o755)
    with engine.using(broken):
        assert engine.run(container, ["echo", "hello"]).rc != 0
    engine.delete(container)


def test_an_annotation_that_was_asked_for_is_in_config_json(
    engine: Engine, container: str, record: Callable[[str], Recorder]
) -> None:
    recorder = record(engine.plain_runtime())
    with engine.using(recorder.path):
        result = engine.run(container, ["true"], annotations={"vcuda.io/core": "30"})
    if isinstance(engine, Docker) and not engine.takes_annotations():
        assert "unknown flag: --annotation" in result.stderr
        return
    assert result.rc == 0, result.stderr
    assert recorder.configs()[-1]["annotations"]["vcuda.io/core"] == "30"


def test_a_device_node_without_a_rule_cannot_be_opened(engine: Engine, container: str) -> None:
    script = "mknod /dev/other c 195 1 && open-node /dev/other /dev/null"
    result = engine.run(container, ["sh", "-c", script])
    assert result == Result(0, "/dev/other: EPERM\n/dev/null: ok\n", "")
