"""kube-scheduler's messages are read and answered in the JSON of its Go types."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import orjson
import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st

from support.scheduler import extender_openapi, go_samples
from support.scheduler.clusters import SETTINGS
from support.scheduler.extender import shown_by_scheduler
from vcuda_oci.model.request import Part
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.cluster.objects import priority_of
from vcuda_plugin.extender.filter import extender_api
from vcuda_plugin.extender.filter.extender_api import Binding, Candidates
from vcuda_plugin.extender.filter.fit import Verdict
from vcuda_plugin.extender.filter.preempt import Victims
from vcuda_plugin.extender.http.server import Server
from vcuda_plugin.extender.model.pod_request import ask_of

POD, NODE = json.loads(go_samples.POD), json.loads(go_samples.NODE)


@pytest.mark.parametrize(
    ("sent", "names", "nodes"),
    [
        (go_samples.BY_NAME, ["a", "b"], None),
        (go_samples.BY_NO_NAME, [], None),
        (go_samples.BY_NODE, ["a"], [NODE]),
        (go_samples.BY_NO_NODE, [], []),
        (go_samples.NEITHER, [], []),
    ],
)
def test_candidates_are_names_or_objects_and_a_list_may_be_null(
    sent: bytes, names: list[str], nodes: Any
) -> None:
    assert extender_api.candidates(sent) == Candidates(POD, names, nodes)


def test_a_pod_is_read_of_what_the_api_server_has_filled_in() -> None:
    ask = ask_of(POD, SETTINGS)
    assert ask and (ask.namespace, ask.uid, ask.node_order) == ("default", "uid-asking", "spread")
    assert [each.parts for each in ask.containers] == [(Part(30, 4 << 30),)]
    assert priority_of(POD) == 1000


def test_a_binding_and_victims_are_read_null_lists_too() -> None:
    assert extender_api.binding(go_samples.BINDING) == Binding(
        "default", "asking", "uid-asking", "a"
    )
    found = {"a": Victims(("uid-q", "uid-r"), 1), "b": Victims(())}
    assert extender_api.preemption(go_samples.META_VICTIMS) == (POD, found)
    assert extender_api.preemption(go_samples.VICTIMS) == (POD, found)
    assert extender_api.preemption(go_samples.NO_VICTIMS) == (POD, {})


def test_answers_have_the_names_of_gos_fields_to_the_letter() -> None:
    verdict = Verdict(["a"], {"b": "full"}, {"c": "small"})
    asked = extender_api.candidates(go_samples.BY_NAME)
    assert extender_api.filter_result(asked, verdict) == (
        b'{"Nodes":null,"NodeNames":["a"],"FailedNodes":{"b":"full"},'
        b'"FailedAndUnresolvableNodes":{"c":"small"},"Error":""}'
    )
    asked = extender_api.candidates(go_samples.BY_NODE)
    assert extender_api.filter_result(asked, verdict) == (
        b'{"Nodes":{"items":[%b]},"NodeNames":null,"FailedNodes":{"b":"full"},'
        b'"FailedAndUnresolvableNodes":{"c":"small"},"Error":""}' % go_samples.NODE
    )
    assert extender_api.filter_error("why") == (
        b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,'
        b'"FailedAndUnresolvableNodes":null,"Error":"why"}'
    )
    assert extender_api.priorities(["a"], [7]) == b'[{"Host":"a","Score":7}]'
    assert extender_api.binding_result("why") == b'{"Error":"why"}'
    assert extender_api.preemption_result({"a": Victims(("u",), 2)}) == (
        b'{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"u"}],"NumPDBViolations":2}}}'
    )


def conforms(body: bytes, name: str) -> None:
    schema = {
        "$ref": f"#/components/schemas/{name}",
        "components": extender_openapi.PAGE["components"],
    }
    jsonschema.Draft202012Validator(schema).validate(json.loads(body))


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        *(("ExtenderArgs", getattr(go_samples, each)) for each in ("BY_NAME", "BY_NO_NAME")),
        *(("ExtenderArgs", getattr(go_samples, each)) for each in ("BY_NODE", "BY_NO_NODE")),
        ("ExtenderArgs", go_samples.NEITHER),
        ("ExtenderBindingArgs", go_samples.BINDING),
        ("ExtenderPreemptionArgs", go_samples.META_VICTIMS),
        ("ExtenderPreemptionArgs", go_samples.VICTIMS),
        ("ExtenderPreemptionArgs", go_samples.NO_VICTIMS),
        ("ExtenderFilterResult", extender_api.filter_error("why")),
    ],
)
def test_the_openapi_page_knows_what_kube_scheduler_sends_and_gets(name: str, sent: bytes) -> None:
    conforms(sent, name)
    with pytest.raises(jsonschema.ValidationError):
        conforms(b'{"Nodes": 7, "PodName": "", "NodeNameToVictims": 7}', name)


def test_the_openapi_page_is_one_and_has_every_path_that_is_served() -> None:
    page = schemathesis.openapi.from_dict(extender_openapi.PAGE)
    page.validate()
    binder: Any = None
    app = Server(Cluster(Rules()), binder, [], SETTINGS).app
    served = {*app._posts, *app._gets}
    paths = {path.replace("{node}", "") for path in extender_openapi.PAGE["paths"]}
    assert paths == served


@given(reason=st.text(alphabet=st.sampled_from("%% 019.dsvn-+#\n'é")))
def test_no_reason_that_the_scheduler_gets_holds_a_format_verb(reason: str) -> None:
    asked = extender_api.candidates(go_samples.BY_NAME)
    verdict = Verdict([], {"b": reason, "d": "30 % asked"}, {"c": reason})
    found = orjson.loads(extender_api.filter_result(asked, verdict))
    (error,) = orjson.loads(extender_api.binding_result(reason)).values()
    failed = orjson.loads(extender_api.filter_error(reason))["Error"]
    sent = [*found["FailedNodes"].values(), *found["FailedAndUnresolvableNodes"].values()]
    for each in (*sent, error, failed):
        assert "%" not in each
        assert shown_by_scheduler(each) == each
    assert found["FailedNodes"]["d"] == "30 percent asked"
    rest = [text.split() for text in (reason.replace("%", ""), error.replace("percent", ""))]
    assert "".join(rest[0]) == "".join(rest[1])
