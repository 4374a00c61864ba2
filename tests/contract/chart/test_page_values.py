"""The cluster page's part of the chart: off by default, and what it adds in each mode."""

from __future__ import annotations

from typing import Any

import pytest

from contract.chart import rendering
from contract.chart.rendering import CLUSTER, EXTENDER, PAGE
from contract.chart.test_rights import rights

SERVICE = "vcuda-cluster-page"
SECRETS_FILES = [
    "--page-tls-cert=/etc/vcuda-page-tls/tls.crt",
    "--page-tls-key=/etc/vcuda-page-tls/tls.key",
]
OWN_CERTIFICATE: dict[str, Any] = {"page": {"enabled": True}}


def test_page_is_off_until_its_value_switches_it_on() -> None:
    found = rendering.objects()
    assert not [each for each in found if each["metadata"]["name"] == SERVICE]
    (extender, _) = rendering.pod_spec(found, EXTENDER)["containers"]
    assert "ports" not in extender and not any("--page" in word for word in extender["command"])


@pytest.mark.parametrize(
    ("scheduler", "options", "ports"),
    [
        (PAGE["scheduler"], SECRETS_FILES, {"page"}),
        (OWN_CERTIFICATE, [], {"page"}),
        ({**CLUSTER["scheduler"], **OWN_CERTIFICATE}, [], {"page", "extender"}),
    ],
    ids=["a Secret", "the pod's certificate", "the cluster's scheduler"],
)
def test_page_has_a_service_the_rights_to_ask_and_its_certificate(
    scheduler: Any, options: list[str], ports: set[str]
) -> None:
    found = rendering.objects({"scheduler": scheduler})
    container = rendering.pod_spec(found, EXTENDER)["containers"][0]
    words = [word for word in container["command"] if "--page" in word]
    assert words == ["--page=0.0.0.0:3457", *options]
    assert {port["name"] for port in container["ports"]} == ports
    service = rendering.one(found, "Service", SERVICE)["spec"]
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(443, "page")]
    assert "/system:auth-delegator" in rights(found, EXTENDER)
    assert "/system:auth-delegator" not in rights(rendering.objects(), EXTENDER)


def test_page_reads_claims_only_where_gpus_are_offered_by_dra() -> None:
    by_dra = {"settings": {"gpu-offer": "dra"}}
    for values, may in (
        ({"scheduler": OWN_CERTIFICATE, **by_dra}, True),
        ({"scheduler": OWN_CERTIFICATE}, False),
        (by_dra, False),
    ):
        found = rights(rendering.objects(values), EXTENDER)
        assert (f"/{EXTENDER}-claims" in found) == may


def test_only_named_pods_reach_the_page() -> None:
    def ingress(page: dict[str, Any]) -> Any:
        found = rendering.objects({"scheduler": {"page": page}})
        return rendering.one(found, "NetworkPolicy", EXTENDER)["spec"]["ingress"]

    peers = [{"podSelector": {"matchLabels": {"app": "proxy"}}}]
    assert ingress({"enabled": True}) == ingress({"enabled": False, "from": peers}) == []
    ports = [{"port": "page", "protocol": "TCP"}]
    assert ingress({"enabled": True, "from": peers}) == [{"ports": ports, "from": peers}]
