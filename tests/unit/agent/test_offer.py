"""A GPU is offered again once the shares of the other way have ended."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.files import write
from support.ledger.samples import record
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.gpu import Gpu
from vcuda_plugin.agent import offer as module
from vcuda_plugin.agent.dra.withheld import OF_CLAIMS
from vcuda_plugin.agent.gpus.inventory import Inventory
from vcuda_plugin.agent.offer import Offer


def test_end_of_claims_is_published_after_another_look_at_them(
    tmp_path: Path, monkeypatch: Any
) -> None:
    published: list[dict[str, str]] = []
    settings = SimpleNamespace(state_dir=str(tmp_path), by_dra=False)
    parts: Any = (
        SimpleNamespace(publish=lambda seen, _: published.append(dict(seen.unhealthy))),
        SimpleNamespace(update=lambda _: None),
        SimpleNamespace(send_gpus=lambda _: None),
    )
    monkeypatch.setattr(module, "_CHECK_SECONDS", 0)
    claim = Ledger(str(tmp_path)).allocations + "/dra@x.json"
    write(claim, record("dra@x", pod={"name": "a"}).dump())
    offer = Offer(settings, [], None, *parts)  # type: ignore[arg-type]

    async def run() -> None:
        following = asyncio.ensure_future(offer.follow())
        offer.changed(Inventory(own=[Gpu("GPU-0", 1, 1, 1 << 30, "", parent="GPU-1", mig=[0] * 3)]))
        await asyncio.sleep(0)
        assert offer.has_claims
        os.unlink(claim)
        # The driver, which runs until the last claim's end.
        assert not offer.has_claims
        for _ in range(10):
            await asyncio.sleep(0)
        following.cancel()

    asyncio.run(run())
    assert published == [{"GPU-0": OF_CLAIMS, "GPU-1": OF_CLAIMS}, {}]
