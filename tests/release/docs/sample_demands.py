"""Write nine days of samples of a container named notebook, in place of a node agent's.

Usage: PYTHONPATH=oci:runtime_hook python3 tests/release/docs/sample_demands.py STATE_DIR
"""

from __future__ import annotations

import os
import sys
import time

from vcuda_hook.advice import demands
from vcuda_hook.advice.demand import DAY_SECONDS, Demand, Sample
from vcuda_hook.advice.workload import CONTAINER, Workload

GIB = 1 << 30
STEP_SECONDS = 100


def main(state_dir: str) -> None:
    """As the agent would after nine days, the last sample of now."""
    demand, now = Demand(), time.time()
    for number in range(int(9 * DAY_SECONDS / STEP_SECONDS)):
        held = int(2.1 * GIB * (1 - number % 2 * 0.3))
        at = now - 9 * DAY_SECONDS + (number + 1) * STEP_SECONDS
        demand.add(Sample(4 * GIB, 30, held, 10.0, 4.0), at)
    path = f"{state_dir}/{demands.FILE}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(demands.dump({Workload(CONTAINER, "", "notebook"): demand}))


if __name__ == "__main__":
    main(sys.argv[1])
