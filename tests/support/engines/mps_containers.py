"""Containers under MPS on an engine's host: what `vcuda` prints of them; their end."""

from __future__ import annotations

import json
from typing import Any

from support.engines.base import Engine
from support.product import Product


def vcuda(machine: Product, engine: Engine, *words: str) -> str:
    result = engine.host.run([f"{machine.prefix}/bin/vcuda", "--config", machine.config, *words])
    assert result.rc == 0, result.stderr
    return result.stdout


def shown(machine: Product, engine: Engine) -> list[Any]:
    found: list[Any] = json.loads(vcuda(machine, engine, "ps", "--json"))
    return found


def end(engine: Engine, *ids: str) -> None:
    for id in ids:
        engine.kill(id)
        engine.wait(id)
        engine.delete(id)
