"""Write a CDI spec again when the driver, the GPUs or the named slices change.

Each check reads everything again, which takes a few milliseconds: /proc and /dev report no changes.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import NoReturn

from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import apply_share
from vcuda_oci.system.settings_file import Config

from . import spec_file


def watch(ledger: Ledger, settings: Config, path: str, kind: str, seconds: float) -> NoReturn:
    """Run until SIGTERM or SIGINT; print one line for each time the spec was written.

    A failure, for example during an update of the driver, is reported once on stderr and tried
    again. Until then the spec stays unchanged; a container does not start while its files are
    missing.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    reported = ""
    while True:
        time.sleep(seconds)
        try:
            facts = apply_share.host_of(settings)
            with ledger:
                changed, devices = spec_file.write(ledger, facts, settings, path, kind)
        except VcudaError as error:
            if str(error) != reported:
                sys.stderr.write(f"vcuda: {error}\n")
            reported = str(error)
            continue
        reported = ""
        if changed:
            print(f"wrote {path}: {', '.join(devices)}", flush=True)
