"""Record events and run `vcuda events` on them."""

from __future__ import annotations

import re
from typing import Any

from support.files import write
from vcuda_hook.cli import main
from vcuda_oci.ledger import events


class EventLog:
    """A state folder with events."""

    def __init__(self, folder: str) -> None:
        self.state_dir = folder + "/state"
        self.config = write(folder + "/config.toml", f'state-dir = "{self.state_dir}"\n')
        self.words = ["--config", self.config, "events"]

    def record(self, kind: str, allocation: str, text: str = "", **more: str) -> None:
        events.record(self.state_dir, "vcuda", kind, allocation, text, **more)

    def lines(self, capsys: Any, *words: str) -> list[list[str]]:
        assert main.main([*self.words, *words]) == 0
        return [re.split(r"  +", line)[1:] for line in capsys.readouterr().out.splitlines()]
