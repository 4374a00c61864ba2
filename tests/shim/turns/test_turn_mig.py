"""Turns on MIG devices, which have clocks of their own, in virtual time."""

from __future__ import annotations

import json
import subprocess

import pytest

from shim.policy_node import PolicyNode, limits_of
from support.gpu.guest import Guest, then_enter
from support.shares.judge import SOFTGPU
from vcuda_hook.live import turn_figures

SECONDS = 5
NONE = 0
# As an engine's device rules: a container can open the capability files of its own MIG device only.
ONLY = """
mount -t tmpfs none "$SOFTGPU_ROOT/dev/nvidia-caps"
for minor in {minors}; do : > "$SOFTGPU_ROOT/dev/nvidia-caps/nvidia-cap$minor"; done
"""
MINORS = {"0:0": "12 13", "0:1": "21 22"}


@pytest.fixture
def host_options() -> list[str]:
    return ["--mig", "0=3g.8gb,3g.8gb"]


def containers(node: PolicyNode, *asked: tuple[str, str]) -> list[Guest]:
    """asked: core and MIG device of each."""
    made = []
    for core, gpu in asked:
        guest = node.container(core=core, gpu=gpu)
        guest.enter = then_enter(ONLY.format(minors=MINORS[gpu]))
        made.append(guest)
    return made


def switched_ns(node: PolicyNode) -> list[int]:
    """What each GPU and MIG device lost to changes of process."""
    command = [SOFTGPU, "time", node.driver_root, "--json", "--as-is"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [gpu["switch_ns"] for gpu in json.loads(done.stdout)["gpus"]]


def turn_words(guests: list[Guest]) -> list[int]:
    return [limits_of(guest).gpus[0].turn for guest in guests]


def test_containers_on_two_mig_devices_take_no_turns_of_each_other(node: PolicyNode) -> None:
    guests = containers(node, ("80", "0:0"), ("80", "0:1"))
    clock = node.clock(len(guests))
    shares = node.shares_on(clock, guests, SECONDS, kernel_us=50, ahead=64)
    assert shares == [pytest.approx(0.8, abs=0.02)] * 2
    assert [word & 3 for word in turn_words(guests)] == [NONE, NONE]
    turns = turn_figures.read(node.state_dir)
    assert sorted(list(of.of) for of in turns.values()) == [["c0"], ["c1"]]
    assert [of.lost_ns for of in turns.values()] == [0, 0]
    assert sum(switched_ns(node)) == 0


def test_containers_on_one_mig_device_take_turns_and_a_third_does_not(node: PolicyNode) -> None:
    guests = containers(node, ("30", "0:0"), ("70", "0:0"), ("80", "0:1"))
    clock = node.clock(len(guests))
    shares = node.shares_on(clock, guests, SECONDS, kernel_us=50, ahead=64)
    assert shares == [pytest.approx(share, abs=0.02) for share in (0.3, 0.7, 0.8)]
    words = turn_words(guests)
    assert (min(words[:2]) >> 2 > 0, words[2] & 3) == (True, NONE)
