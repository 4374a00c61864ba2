"""The agent's audit of turns, as a script of the judge: polls NVML as often as the agent does."""

from __future__ import annotations

# A pid's container is known here; on a node the agent finds it by the process's cgroups.
AUDIT = """
import json, os, sys, time
from vcuda_oci.ledger.ledger import Ledger
from vcuda_plugin.agent.bypass.outside_watch import PERIOD_SECONDS
from vcuda_plugin.agent.bypass.process_probe import ProcessProbe
from vcuda_plugin.agent.bypass.turn_audit import SECOND, TurnAudit
given = json.loads(sys.argv[1])
os.environ["SOFTGPU_ROOT"] = given["root"]
library = given["root"] + "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
allocations, _ = Ledger(given["state"]).read()
uuid = allocations[0].shares[0].uuid
probe, audit = ProcessProbe(library, [uuid]), TurnAudit(given["state"])
ids = {pid: f"c{at}" for at, pid in enumerate(given["pids"])}
while True:
    seen = [(ids[one.pid], one.busy_percent / 100) for one in probe.poll() if one.pid in ids]
    used = {(id, uuid): part for id, part in seen}
    found = audit.end(allocations, used, {uuid: sum(used.values())})
    print(seen, found, file=sys.stdout, flush=True)
    time.sleep(PERIOD_SECONDS - SECOND)
    audit.begin()
    time.sleep(SECOND)
"""
