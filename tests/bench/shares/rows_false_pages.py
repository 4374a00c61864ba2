"""A row of the table of shares: a container writes false signals into its own page."""

from __future__ import annotations

from collections.abc import Sequence

from bench.shares.rows import Case, Judged, Row
from support.shares import false_pages, loads
from support.shares.audit import AUDIT
from support.shares.judge import WARMING_S, Tenant, judge
from support.shares.loads import Load

OWN, NEIGHBOURS = 30, 70
# A third longer than a turn leaves, and than the neighbour waits for after it.
MS_12 = Load("12 ms waited", 12_000)
# Warming and window: an audit takes half a minute, and its charge is paid for minutes.
AUDITED_S = (60.0, 180.0)


def row() -> Row:
    """Judged by work: a turn in which the driver slices another's kernels is not whole."""

    def case(
        name: str, script: str, load: Load | None, quick: bool = False, audited: bool = False
    ) -> Case:
        tenants = [Tenant(OWN, load), Tenant(NEIGHBOURS, loads.AHEAD)]
        scripts = [false_pages.PAGE + script, *([AUDIT] if audited else [])]

        def run(options: Sequence[str]) -> Judged:
            seconds = AUDITED_S if audited else (WARMING_S, 0)
            outcome = judge(
                options, tenants, scripts=scripts, warming_s=seconds[0], window_s=seconds[1]
            )
            own, neighbour = outcome.tenants
            return {
                "taken from its neighbour": NEIGHBOURS - 100 * neighbour.work,
                "beyond its own": 100 * own.work - OWN,
                "keepers ended": float(not outcome.keeper_survived),
            }

        return Case(f"{name}: {load.name if load else 'no process'}", run, quick)

    cases = [
        case("busy for ever", false_pages.BUSY_FOR_EVER, None),
        case("busy for ever", false_pages.BUSY_FOR_EVER, loads.AHEAD, quick=True),
        case("wants for ever", false_pages.WANTS_FOR_EVER, None),
        case("never busy", false_pages.NEVER_BUSY, loads.AHEAD),
        # What only NVML shows is found after half a minute.
        case("never busy, audited", false_pages.NEVER_BUSY, MS_12, audited=True),
        case("never busy, audited", false_pages.NEVER_BUSY, loads.MS_25, audited=True),
        case("never busy, audited", false_pages.NEVER_BUSY, loads.MS_300, audited=True),
        case("rings", false_pages.RINGING, loads.AHEAD),
        case("cut short", false_pages.TRUNCATED, loads.AHEAD, quick=True),
        case("cut short", false_pages.TRUNCATED, loads.MS_5),
        case("random bytes", false_pages.RANDOM, loads.AHEAD),
        case("random signals", false_pages.FLIPS % 1, loads.AHEAD),
        case("random signals", false_pages.FLIPS % 1, loads.MS_5),
    ]
    goals = {
        "taken from its neighbour": (2.0, "points"),
        "beyond its own": (2.0, "points"),
        "keepers ended": (0.0, ""),
    }
    return Row("a false page", goals, cases)
