"""Of several claims on one share at the same moment, one succeeds."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.ledger.claims import NODE, Claims
from support.ledger.samples import GIB, left_in
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger.claim import Claim, claim
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.placement.rules import Rules


@pytest.fixture
def claims(tmp_path: Any) -> Claims:
    return Claims(tmp_path)


class Racer:
    """A process that claims 60 % on each command, and continues to live as a runtime does."""

    def __init__(self, claims: Claims, id: str) -> None:
        start, self.start = os.pipe()
        self.answer, answer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.start)
            while os.read(start, 1):
                os.write(answer, self.try_once(claims, id))
            os._exit(0)
        os.close(start)
        os.close(answer)

    def try_once(self, claims: Claims, id: str) -> bytes:
        owner, request = Owner(id, id), Request.of(60, 4 * GIB)
        try:
            held, _ = claim(
                claims.ledger,
                NODE,
                Claim(owner, request, claims.runtime.words, os.getpid()),
                Rules(),
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
def test_simultaneous_claims_give_one_share_in_each_of_a_thousand_rounds(
    claims: Claims, ids: tuple[str, str], expected: list[bytes]
) -> None:
    first = Racer(claims, ids[0])
    second = Racer(claims, ids[1])
    wrong = []
    for number in range(1000):
        for racer in (first, second) if number % 2 else (second, first):
            os.write(racer.start, b"!")
        answers = sorted([os.read(first.answer, 1), os.read(second.answer, 1)])
        held = [id for id in set(ids) if claims.ledger.get(id)]
        if (answers, len(held)) != (expected, 1):
            wrong.append((number, answers, held))
        with claims.ledger:
            claims.ledger.remove(held[0])
    assert [second.end(), first.end()] == [0, 0]
    assert wrong == []
    assert left_in(claims.ledger.state_dir) == []
