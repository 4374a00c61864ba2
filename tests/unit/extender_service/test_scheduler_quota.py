"""Quotas: a namespace's limits by GPU model and pool."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from support.scheduler import clusters
from support.scheduler.clusters import SETTINGS, container, facts, gpus_of, node
from vcuda_oci.model.errors import VcudaError
from vcuda_plugin.extender.bind.bind import Binder
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.filter.extender_api import Binding
from vcuda_plugin.extender.filter.fit import Verdict, fit
from vcuda_plugin.extender.quota import quota_limits
from vcuda_plugin.extender.quota.quota_limits import Limit, QuotaPlace


def labelled(name: str, model: str = "", pool: str = "", count: int = 4) -> dict[str, Any]:
    labels = {"gaia.tencent.com/gpu-model": model, "tkestack.io/gpu-pool": pool}
    told_gpus = gpus_of(name, *[16] * count)
    return node(name, told_gpus, labels={key: value for key, value in labels.items() if value})


NODES = [
    labelled("a", "M40", "public"),
    labelled("b", "M40", "private"),
    labelled("c", "P100", "public"),
    labelled("d"),
]
TEAM = {"team": {"quota": {"M40": 2}, "pool": ["public"]}}


def limited(quota: Any, *objects: dict[str, Any]) -> Cluster:
    cluster = clusters.cluster(*NODES, *objects)
    cluster.quota.limits = quota_limits.parse({"data": {"gpu_quota": json.dumps(quota)}})
    return cluster


def held(name: str, core: int, node: str = "a", namespace: str = "team") -> dict[str, Any]:
    return clusters.pod(name, container(core=core), node=node, namespace=namespace)


def asked(cluster: Cluster, *containers: Any, namespace: str = "team", **more: Any) -> Verdict:
    ask = clusters.ask(*containers, namespace=namespace, **more)
    return fit(cluster, ask, ["a", "b", "c", "d", "z"])


def test_a_namespace_gets_its_models_in_its_pools_up_to_its_cards() -> None:
    cluster = limited(TEAM, held("p", 130), held("other", 100, namespace="others"))
    refusal = "ExceedsGPUQuota: namespace team"
    elsewhere = {
        "b": f"{refusal} may use the GPUs of public only",
        "c": f"{refusal} has no quota of P100",
        "d": f"{refusal} may use the GPUs of public only",
    }
    unknown = {"z": "not known to the scheduler extender yet"}
    assert asked(cluster, container(core=70)) == Verdict(["a"], unknown, elsewhere)
    over = {"a": f"{refusal} uses 1.3 of 2 cards of M40; 0.8 asked"}
    assert asked(cluster, container(core=80)) == Verdict([], over | unknown, elsewhere)
    never = {"a": f"{refusal} uses 1.3 of 2 cards of M40; 3 asked"}
    assert asked(cluster, container(core=300)) == Verdict([], unknown, never | elsewhere)
    # The quota is named as the reason even if no GPU is free either.
    cluster.put_pod(facts(held("more", 200, namespace="others")))
    assert asked(cluster, container(core=100)).refused["a"].startswith(refusal)


def test_use_counts_by_model_whatever_the_pool() -> None:
    cluster = limited({"team": {"quota": {"M40": 2, "P100": 0}}}, held("p", 150, "b"))
    assert asked(cluster, container(core=50)).fitting == ["a", "b"]
    assert asked(cluster, container(core=60)).fitting == []


@pytest.mark.parametrize("quota", [{}, {"others": {"quota": {}}}], ids=["none", "of others"])
def test_a_namespace_without_a_quota_is_not_limited(quota: Any) -> None:
    cluster = limited(quota, held("p", 200))
    assert asked(cluster, container(core=200)).fitting == ["a", "b", "c", "d"]


def test_an_init_container_counts_as_much_as_runs_at_one_time() -> None:
    cluster = limited({"team": {"quota": {"M40": 1}}})
    apps = container("x", core=30), container("y", core=30)
    first, more = container("i", core=100), container("j", core=101)
    assert asked(cluster, *apps, inits=(first,)).fitting == ["a", "b"]
    assert asked(cluster, *apps, inits=(first, more)).fitting == []


def test_a_node_that_gets_another_label_counts_its_pods_there() -> None:
    cluster = limited({"team": {"quota": {"M40": 1, "P100": 1}}}, held("p", 60))
    assert asked(cluster, container(core=50)).fitting == ["c"]
    cluster.put_node(facts_of(labelled("a", "P100")))
    assert asked(cluster, container(core=50)).fitting == ["b"]
    cluster.drop_node("a")
    assert asked(cluster, container(core=50)).fitting == ["b"]
    cluster.end_pod("uid-p")
    assert asked(cluster, container(core=50)).fitting == ["b", "c"]


def facts_of(tree: dict[str, Any]) -> Any:
    return clusters.node_of(tree)


class Losing:
    """Answers no binding."""

    async def call(self, *said: Any, **query: str) -> tuple[int, Any]:
        return 500, {}


def test_a_binding_without_an_answer_counts_once_until_it_is_given_up() -> None:
    cluster = limited({"team": {"quota": {"M40": 1}}})
    binder = Binder(cluster, Losing(), SETTINGS)  # type: ignore[arg-type]
    for name in ("p", "q"):
        cluster.put_pod(facts(clusters.pod(name, container(core=60), namespace="team")))
    lost = "the API server: 500 "
    # The same pod, on either node of the model: it is bound to one of them at most.
    assert asyncio.run(binder.bind(Binding("team", "p", "uid-p", "a"))) == lost
    assert asyncio.run(binder.bind(Binding("team", "p", "uid-p", "b"))) == lost
    refused = "ExceedsGPUQuota: namespace team uses 0.6 of 1 cards of M40; 0.6 asked"
    assert asyncio.run(binder.bind(Binding("team", "q", "uid-q", "b"))) == refused
    cluster.expire(1e12)
    assert asyncio.run(binder.bind(Binding("team", "q", "uid-q", "b"))) == lost


def test_use_and_limits_are_reported_in_cards() -> None:
    cluster = limited(TEAM, held("p", 130), held("other", 50, "c", namespace="others"))
    row = {"namespace": "team", "model": "M40", "used": 1.3, "limit": 2.0, "pools": ["public"]}
    none = {"namespace": "others", "model": "P100", "used": 0.5, "limit": None, "pools": []}
    assert cluster.quota.report() == [none, row]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "gpu_quota is not JSON: unexpected end of data: line 1 column 2 (char 1)"),
        ("[]", "gpu_quota is not an object; write "),
        ('{"t": 1}', "of 't': write an object of quota and pool"),
        ('{"t": {"qouta": {}}}', "of 't': write an object of quota and pool"),
        ('{"t": {"quota": 3}}', "of 't': quota is not an object of cards by model"),
        ('{"t": {"quota": {"M40": -1}}}', "of 't': 'M40' cannot have -1 cards"),
        ('{"t": {"quota": {"M40": true}}}', "of 't': 'M40' cannot have True cards"),
        ('{"t": {"quota": {"M40": 0.333}}}', "of 't': 'M40' cannot have 0.333 cards"),
        ('{"t": {"quota": {"M40": 1e99}}}', "of 't': 'M40' cannot have 1e+99 cards"),
        ('{"t": {"pool": "public"}}', "of 't': pool is not a list of names"),
        (None, "there is no key gpu_quota; write "),
    ],
)
def test_a_quota_that_means_nothing_is_refused_with_its_place(text: Any, why: str) -> None:
    with pytest.raises(ValueError) as refused:
        quota_limits.parse({"data": {"gpu_quota": text} if text else {}})
    assert str(refused.value).startswith(why)


def test_parts_of_cards_may_be_given() -> None:
    text = '{"t": {"quota": {"M40": 0.29, "P100": 3}, "pool": ["y", "x", "y"]}, "u": {}}'
    found = quota_limits.parse({"data": {"gpu_quota": text}})
    assert found == {"t": Limit({"M40": 29, "P100": 300}, ("x", "y")), "u": Limit({}, ())}


def test_gpumanagers_configuration_names_the_map_and_the_labels(tmp_path: Any) -> None:
    file = tmp_path / "gpu-quota-admission.config"
    file.write_text('{"QuotaConfigMapName": "q", "GPUModelLabel": "m", "SkipBindTime": 300}')
    place = quota_limits.load_place(str(file))
    assert place == QuotaPlace("q", model_labels=("m",))
    tree = {"metadata": {"name": "n", "labels": {"m": "X", "gaia.tencent.com/gpu-pool": "y"}}}
    group = clusters.node_of(tree, place).group
    assert (group.model, group.pool) == ("X", "y")
    assert quota_limits.load_place("") == QuotaPlace("gpuquota", "kube-system")
    for text in ("", "[]", '{"GPUModel": "m"}', '{"GPUModelLabel": 1}'):
        file.write_text(text)
        with pytest.raises(VcudaError, match="write a JSON object of QuotaConfigMapName, "):
            quota_limits.load_place(str(file))
