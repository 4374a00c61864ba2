"""The process that suspends and resumes containers by itself: it polls suspender.py.

It prints lines for the agent's log, each as JSON. It ends when no container concerns it any more;
the agent starts it again for the next one.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from vcuda_hook.suspend import repairs
from vcuda_oci.host import host
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system.settings_file import Config

from ..ledger.records import Records
from .suspender import Suspender, concerns, interrupted

# Between two searches for what a killed program left.
_REPAIR_SECONDS = 5.0
# A driver that cannot be asked is asked again after this time.
_DRIVER_SECONDS = 10.0


def main(settings: Config) -> None:
    records = Records(settings.state_dir)
    try:
        facts = host.load(settings.driver_root, settings.state_dir + "/host.json")
    except VcudaError as error:
        _say(str(error))
        time.sleep(_DRIVER_SECONDS)
        return
    suspender = Suspender(records, facts, settings, _say)
    threading.Thread(target=_repair, args=(records, facts), daemon=True).start()
    while any(concerns(one) for one in records.read()):
        time.sleep(suspender.poll(time.monotonic()))


def _repair(records: Records, facts: host.Host) -> None:
    """Complete what killed programs left, for ever."""
    own = Records(records.ledger.state_dir)
    while True:
        for id in interrupted(own.read()):
            try:
                repairs.repair(own.ledger, facts, id)
            except VcudaError as error:
                _say(f"cannot repair: {error}")
        time.sleep(_REPAIR_SECONDS)


def _say(line: str) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
