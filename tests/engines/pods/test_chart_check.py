"""The pod of `helm test`: its command in containers with the share of its manifest and another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contract.chart import rendering
from support.engines.base import Engine
from support.product import MIB, Product, asking


@pytest.mark.parametrize(("blocks", "code"), [(4, 0), (3, 1)])
def test_chart_check_passes_only_with_its_own_share(
    start_engine: Callable[[str], Engine], product: Product, container: str, blocks: int, code: int
) -> None:
    (pod,) = rendering.checks()
    (check,) = pod["spec"]["containers"]
    limits = check["resources"]["limits"]
    assert limits == {"tencent.com/vcuda-core": 10, "tencent.com/vcuda-memory": 4}
    engine = start_engine("runc-v2")
    with product.on(engine):
        asked = asking(engine, core=10, memory_bytes=blocks * 256 * MIB)
        result = engine.run(container, check["command"], **asked)
    assert result.rc == code, result.stderr
    said = result.stderr if code else result.stdout
    expected = {
        0: "one GPU with 1024 MiB, as asked for\n",
        1: "asked for 1024 MiB of one GPU; nvidia-smi shows, in MiB: 768\n",
    }
    assert said == expected[code]
