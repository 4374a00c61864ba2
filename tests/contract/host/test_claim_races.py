"""Claims at the same moment: of one share one container gets it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.samples import GIB, left_in
from unit.test_claim import NODE, Desk
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger.claim import Claim, Rules, claim
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request


@pytest.fixture
def desk(tmp_path: Any) -> Desk:
    return Desk(tmp_path)


class Racer:
    """A process that claims 60 % each time it is told to, and lives on as a runtime does."""

    def __init__(self, desk: Desk, id: str) -> None:
        start, self.start = os.pipe()
        self.answer, answer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.start)
            while os.read(start, 1):
                os.write(answer, self.try_once(desk, id))
            os._exit(0)
        os.close(start)
        os.close(answer)

    def try_once(self, desk: Desk, id: str) -> bytes:
        owner, request = Owner(id, id), Request.of(60, 4 * GIB)
        try:
            held, _ = claim(
                desk.ledger, NODE, Claim(owner, request, desk.runtime.words, os.getpid()), Rules()
            )
        except VcudaError as error:
            return b"-" if error.what.startswith("largest free share is 40 %") else b"!"
        return b"+" if held.shares == [GpuShare("GPU-0", 4 * GIB, 60)] else b"?"

    def end(self) -> int:
        os.close(self.start)
        os.close(self.answer)
        return os.waitpid(self.pid, 0)[1]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [(("a", "b"), [b"+", b"-"]), (("a", "a"), [b"+", b"+"])],
    ids=["two containers: one is refused", "one container: both get the same"],
)
def test_of_claims_at_the_same_moment_one_share_comes_in_a_thousand_rounds(
    desk: Desk, ids: tuple[str, str], expected: list[bytes]
) -> None:
    first = Racer(desk, ids[0])
    second = Racer(desk, ids[1])
    wrong = []
    for number in range(1000):
        for racer in (first, second) if number % 2 else (second, first):
            os.write(racer.start, b"!")
        answers = sorted([os.read(first.answer, 1), os.read(second.answer, 1)])
        held = [id for id in set(ids) if desk.ledger.get(id)]
        if (answers, len(held)) != (expected, 1):
            wrong.append((number, answers, held))
        with desk.ledger:
            desk.ledger.remove(held[0])
    assert [second.end(), first.end()] == [0, 0]
    assert wrong == []
    assert left_in(desk.ledger.state_dir) == []
