"""Containers' names and images as one line that the agent sends to the HTTP process.

The HTTP process may not read the engines' files. The line is MARK and a JSON object: by allocation
id, [name, image], "" where unknown or not to be shown.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence

from vcuda_hook.names import container_names
from vcuda_hook.names.engine_files import Described
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError

from ..ledger.records import Records

MARK = b"N"
SENSORS = b"S"  # the first byte of a line with the GPUs' sensors as JSON
# An engine renames a container without a change of its record.
PERIOD_SECONDS = 2.0
# A line stays below the bound of its reader.
_MOST = 1500


async def run(state_dir: str, send: Callable[[bytes], None]) -> None:
    """Send a line whenever a name has changed, until cancelled."""
    records, sent = Records(state_dir), b""
    while True:
        try:
            line = await asyncio.to_thread(lambda: dump(records.read()))
        except (OSError, VcudaError):
            line = sent
        if line != sent:
            send(line)
            sent = line
        await asyncio.sleep(PERIOD_SECONDS)


def dump(allocations: Sequence[Allocation]) -> bytes:
    """The line of all containers that an engine describes; a pod's name is in its record."""
    found = container_names.of(allocations)
    described = {each.id: found[each.id] for each in allocations if each.engine}
    tree = dict(itertools.islice(described.items(), _MOST))
    return MARK + json.dumps(tree).encode() + b"\n"


def parse(line: bytes) -> Mapping[str, Described]:
    return {id: Described(*texts) for id, texts in json.loads(line[len(MARK) :]).items()}
