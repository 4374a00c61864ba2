"""Room for a container that comes back: its neighbours' pools give back what they keep."""

from __future__ import annotations

import os
from collections.abc import Collection

from vcuda_oci.guest import page_file
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.pages import limits_in_place


def ask_others(ledger: Ledger, id: str, uuids: Collection[str]) -> None:
    """Ask all containers on these GPUs but `id`; each answers after its next call that waits for
    the GPU, so what it keeps may be there for some time, or for ever.
    """
    for record in ledger.read()[0]:
        if record.id == id or record.suspension:
            continue
        asked = [at for at, share in enumerate(record.shares) if share.uuid in uuids]
        if not asked:
            continue
        try:
            page = page_file.open_page(f"{ledger.containers}/{record.id}/limits", os.O_RDWR)
        except OSError:
            continue  # it is being removed
        try:
            for gpu in asked:
                limits_in_place.ask_to_trim(page, gpu)
        except OSError:
            pass  # without the room that it keeps the restore is refused, as before
        finally:
            os.close(page)
