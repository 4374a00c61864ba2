"""A full disk at every single change causes one error line and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from contract.host.ledger.test_faults import HALF, ME, NEW, OLD, Ledgers
from support.files import ROOT, write
from support.ledger.faults import without_space
from support.ledger.samples import left_in, pod_owner, shares_of
from vcuda_oci.container import bundle
from vcuda_oci.model.errors import VcudaError


@pytest.fixture
def ledgers(tmp_path: Any) -> Ledgers:
    return Ledgers(tmp_path)


def without_space_at_every_change(act: Callable[[], Any]) -> list[Any]:
    answers: list[Any] = []
    while True:
        came, answer = without_space(len(answers) + 1, act)
        if not came:
            return answers
        answers.append(answer)


def assert_one_line(answers: list[Any], least: int) -> None:
    assert len(answers) >= least
    for answer in answers:
        assert isinstance(answer, VcudaError)
        assert "No space left on device" in str(answer)
        assert "free space" in answer.hint


def test_a_claim_without_space_is_one_line_and_nothing_stays(ledgers: Ledgers) -> None:
    def act() -> None:
        try:
            ledgers.claim(ME)
            ledgers.release("me")
        finally:
            ledgers.sweep()
            assert left_in(ledgers.ledger.state_dir) == []

    # The last changes are those of the release, which continues without them: None.
    answers = without_space_at_every_change(act)
    assert_one_line([answer for answer in answers if answer is not None], 8)


def test_a_take_over_without_space_keeps_the_record(ledgers: Ledgers) -> None:
    ledgers.runtime.set_state("sandbox1", "running")
    ledgers.claim_in_a_child(pod_owner("c1"))
    known = ledgers.ledger.get("pod-uid1.main")
    assert known

    def act() -> None:
        try:
            ledgers.claim(pod_owner("c2"))
        finally:
            assert shares_of(ledgers.ledger) == {"pod-uid1.main": HALF}
            with ledgers.ledger:
                ledgers.ledger.record(known)

    answers = without_space_at_every_change(act)
    # The last ones are of the line above.
    assert_one_line([answer for answer in answers if isinstance(answer, VcudaError)], 8)


def test_a_config_that_finds_no_space_stays_as_it_was(tmp_path: Any) -> None:
    path = write(f"{tmp_path}/bundle/config.json", OLD)

    def act() -> None:
        try:
            bundle.replace_config(path, NEW)
        except VcudaError:
            assert os.listdir(f"{tmp_path}/bundle") == ["config.json"]
            with open(path, "rb") as file:
                assert file.read() == OLD
            raise

    assert_one_line(without_space_at_every_change(act), 4)


def test_a_real_file_system_that_is_full_is_one_line_and_nothing_stays(tmp_path: Any) -> None:
    """A tmpfs that has room for the limits page and not for the usage page."""
    program = f"""
import os, sys
sys.path[:0] = [{ROOT + "/oci"!r}, {ROOT + "/tests"!r}]
from contract.host.ledger.test_faults import *
from support.ledger.samples import left_in
ledgers = Ledgers({str(tmp_path)!r})
try:
    ledgers.claim(ME)
except VcudaError as error:
    print(error)
print(left_in(ledgers.ledger.state_dir))
"""
    os.mkdir(f"{tmp_path}/state")
    mounted = f'mount -t tmpfs -o size=32k none {tmp_path}/state && exec "$@"'
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounted, "sh", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    line, left = ran.stdout.splitlines()
    assert line.endswith("No space left on device; free space there, or set state-dir")
    assert left == "[]"
