"""The arbiter's division of a GPU's time: each policy's guarantees, for any set of containers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.agent.compute.rates import WHOLE_PPM, Tenant, grants

POINT = 10_000  # ppm in a percent
MOST = 12  # tenants; each rounding loses less than 1 ppm for each


def tenant(core: int, policy: str = "fixed", used: int | None = None, **terms: Any) -> Tenant:
    """used: percent that it is content with; None: it wants more."""
    ceiling = terms.pop("ceiling", core if policy == "fixed" else 100)
    weight = terms.pop("weight", core)
    share = GpuShare("GPU-0", 1, core, policy, ceiling, weight, terms.pop("priority", 0))
    return Tenant(share, used is None, (used or 0) * POINT)


def fixed(core: int, used: int | None = None) -> Tenant:
    return tenant(core, "fixed", used)


def elastic(core: int, used: int | None = None, **terms: Any) -> Tenant:
    return tenant(core, "elastic", used, **terms)


def weighted(core: int, weight: int, used: int | None = None, **terms: Any) -> Tenant:
    return tenant(core, "weighted", used, weight=weight, **terms)


def best_effort(core: int, used: int | None = None) -> Tenant:
    return tenant(core, "best-effort", used)


@pytest.mark.parametrize(
    ("tenants", "percents"),
    [
        ([], []),
        ([fixed(30), fixed(20)], [30, 20]),
        ([elastic(30)], [100]),
        ([elastic(30, ceiling=60)], [60]),
        ([elastic(30), elastic(30)], [50, 50]),
        # Unused time is divided by core; time above a ceiling goes to the other.
        ([elastic(10), elastic(30)], [25, 75]),
        ([elastic(10), elastic(30, ceiling=40)], [60, 40]),
        # A quarter and three quarters of the unreserved 60.
        ([weighted(20, 100), weighted(20, 300)], [35, 65]),
        ([elastic(25), weighted(25, 75)], [37.5, 62.5]),
        # The idle one's time is lent, its rate is not touched.
        ([elastic(30), fixed(70, used=0)], [100, 70]),
        ([elastic(30), fixed(70, used=50)], [50, 70]),
        ([elastic(30), elastic(30, used=60)], [50, 50]),
        ([elastic(30), elastic(30, used=40)], [60, 50]),
        # The higher priority takes all unused time.
        ([elastic(20, priority=1), elastic(20)], [80, 20]),
        ([elastic(20, priority=1, ceiling=50), weighted(20, 1), fixed(10)], [50, 40, 10]),
        # Best-effort is below all, and of several each gets its part.
        ([best_effort(50), fixed(30)], [70, 30]),
        ([best_effort(50), fixed(30), elastic(20)], [1, 30, 69]),
        ([best_effort(20), best_effort(10), fixed(10)], [1 + 88 * 2 / 3, 1 + 88 / 3, 10]),
        # All are idle: each rate is what the container may take at once.
        ([elastic(30, used=0), best_effort(20, used=0), fixed(20, used=10)], [90, 90, 20]),
    ],
)
def test_a_gpus_time_is_granted_by_policy(tenants: list[Tenant], percents: list[float]) -> None:
    assert grants(tenants) == [pytest.approx(percent * POINT, abs=MOST) for percent in percents]


@st.composite
def gpus(draw: st.DrawFn) -> list[Tenant]:
    """Tenants with percents that add up to 100 at most, as placement leaves them."""
    left, tenants = 100, list[Any]()
    while left and len(tenants) < MOST and draw(st.booleans()) | (not tenants):
        core = draw(st.integers(1, left))
        left -= core
        policy = draw(st.sampled_from(["fixed", "elastic", "weighted", "best-effort"]))
        own_priority = policy in ("elastic", "weighted")
        share = GpuShare(
            "GPU-0",
            1,
            core,
            policy,
            draw(st.integers(core, 100)) if policy == "elastic" else core,
            draw(st.integers(1, 10_000)) if policy == "weighted" else core,
            draw(st.integers(0, 2)) if own_priority else 0,
        )
        if policy in ("weighted", "best-effort"):
            share.core_ceiling_percent = 100
        wants = draw(st.booleans())
        tenants.append(Tenant(share, wants, draw(st.integers(0, WHOLE_PPM))))
    return tenants


def wanted(tenants: list[Tenant]) -> list[tuple[Tenant, int]]:
    return [(tenant, ppm) for tenant, ppm in zip(tenants, grants(tenants)) if tenant.wants]


def ceiling(tenant: Tenant) -> int:
    return tenant.share.core_ceiling_percent * POINT


@given(gpus())
def test_containers_that_want_more_never_get_more_than_the_whole_gpu(tenants: list[Tenant]) -> None:
    assert sum(ppm for _, ppm in wanted(tenants)) <= WHOLE_PPM


@given(gpus())
def test_every_container_has_its_guarantee_whether_it_wants_it_or_not(
    tenants: list[Tenant],
) -> None:
    for tenant, ppm in zip(tenants, grants(tenants)):
        floor = 1 if tenant.share.policy == "best-effort" else tenant.share.core_percent
        assert ppm >= floor * POINT


@given(gpus())
def test_no_tenant_gets_more_than_its_ceiling(tenants: list[Tenant]) -> None:
    for tenant, ppm in zip(tenants, grants(tenants)):
        assert ppm <= ceiling(tenant)


@given(gpus())
def test_no_time_stays_unused_while_a_tenant_wants_more(tenants: list[Tenant]) -> None:
    granted = wanted(tenants)
    used = sum(min(t.used_ppm, ceiling(t)) for t in tenants if not t.wants)
    if any(ppm < ceiling(tenant) for tenant, ppm in granted):
        assert sum(ppm for _, ppm in granted) + used > WHOLE_PPM - MOST


@given(gpus())
def test_unused_time_is_shared_by_weight_below_the_ceilings(tenants: list[Tenant]) -> None:
    """No two of one priority differ in what they have beyond the guarantee for one of weight 1."""
    beyond = [
        (tenant.share.priority, (ppm - tenant.guarantee_ppm) / tenant.share.weight, tenant)
        for tenant, ppm in wanted(tenants)
        if tenant.share.policy in ("elastic", "weighted") and ppm < ceiling(tenant)
    ]
    for priority, part, tenant in beyond:
        for other_priority, other, neighbour in beyond:
            if priority == other_priority:
                error = 1 / tenant.share.weight + 1 / neighbour.share.weight
                assert abs(part - other) <= error


@given(gpus())
def test_a_lower_priority_has_nothing_beyond_its_guarantee_while_a_higher_wants(
    tenants: list[Tenant],
) -> None:
    def rank(tenant: Tenant) -> tuple[bool, int]:
        return tenant.share.policy != "best-effort", tenant.share.priority

    granted = [(t, ppm) for t, ppm in wanted(tenants) if t.share.policy != "fixed"]
    hungry = [rank(tenant) for tenant, ppm in granted if ppm < ceiling(tenant)]
    for tenant, ppm in granted:
        if any(rank(tenant) < higher for higher in hungry):
            assert ppm <= tenant.guarantee_ppm + MOST


@given(gpus(), st.integers(0, MOST - 1))
def test_a_tenant_that_wants_less_takes_from_no_other(tenants: list[Tenant], at: int) -> None:
    at %= len(tenants)
    content = [*tenants[:at], Tenant(tenants[at].share, False, 0), *tenants[at + 1 :]]
    before, after = grants(tenants), grants(content)
    for other in range(len(tenants)):
        if other != at and tenants[other].wants:
            assert after[other] >= before[other] - MOST


@given(gpus(), st.integers(0, MOST - 1), st.integers(0, 10_000), st.integers(0, 5))
def test_more_weight_or_priority_never_gives_less(
    tenants: list[Tenant], at: int, weight: int, priority: int
) -> None:
    at %= len(tenants)
    terms = tenants[at].share.fields()
    for raised in (
        {"weight": terms["weight"] + weight},
        {"priority": terms["priority"] + priority},
    ):
        if terms["policy"] not in ("elastic", "weighted"):
            continue
        more = [*tenants]
        more[at] = Tenant(GpuShare(**{**terms, **raised}), tenants[at].wants, tenants[at].used_ppm)
        assert grants(more)[at] >= grants(tenants)[at] - MOST


@given(gpus(), st.randoms())
def test_the_grant_of_each_depends_on_no_order(tenants: list[Tenant], random: Any) -> None:
    order = list(range(len(tenants)))
    random.shuffle(order)
    shuffled = grants([tenants[at] for at in order])
    assert shuffled == [grants(tenants)[at] for at in order]


@given(gpus())
def test_a_satisfied_container_retains_its_grant(tenants: list[Tenant]) -> None:
    once = grants(tenants)
    again = [
        Tenant(t.share, False, ppm if t.wants else t.used_ppm) for t, ppm in zip(tenants, once)
    ]
    for tenant, before, after in zip(tenants, once, grants(again)):
        assert not tenant.wants or after >= before - MOST
