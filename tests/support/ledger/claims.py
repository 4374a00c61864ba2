"""Make claims on a ledger as the wrapper does."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.ledger.samples import GIB, host
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger.claim import Claim, claim
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.placement.rules import Rules

NODE = host(16)
HALF = Request.of(50, 4 * GIB)


class Claims:
    """A ledger, and claims of which the claiming process has ended since."""

    def __init__(self, folder: Any) -> None:
        self.ledger = Ledger(f"{folder}/state")
        self.runtime = FakeRuntime(f"{folder}/runc")
        self.overcommit, self.context_bytes = 1.0, 0

    def claim(
        self,
        owner: Owner | str,
        request: Request = HALF,
        node: Any = NODE,
        **rules: Any,
    ) -> Any:
        """Claim as the wrapper does; the claiming process has then become runc and ended."""
        owner = Owner(owner, owner) if isinstance(owner, str) else owner
        own = {"overcommit": self.overcommit, "context_bytes": self.context_bytes}
        wanted = Claim(owner, request, self.runtime.words, os.getpid())
        allocation, is_new = claim(self.ledger, node, wanted, Rules(**{**own, **rules}))
        with self.ledger:
            allocation.claimant = [os.getpid(), 1]
            self.ledger.record(allocation)
        return allocation.shares, is_new

    def refusal(self, *arguments: Any, **rules: Any) -> str:
        with pytest.raises(VcudaError) as refused:
            self.claim(*arguments, **rules)
        return str(refused.value)
