"""The admission policies that make claims of resources: what they agree on with the program.

Their expressions need Kubernetes' functions:
tests/cluster/claims/test_old_manifests.py evaluates them.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from contract.chart import rendering
from contract.chart.rendering import CLAIM_TEMPLATES, CLAIMS, DRA
from vcuda_oci.system import settings_file
from vcuda_plugin.extender.claims import maker, template
from vcuda_plugin.extender.model import annotations as known

KINDS = ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
SETTINGS = settings_file.parse('gpu-resource = "nvidia.com/gpu"', "config.toml")


def spec(kind: str, values: Any = CLAIMS) -> Any:
    return rendering.one(rendering.objects(values), kind, CLAIM_TEMPLATES)["spec"]


def words(values: Any = CLAIMS) -> dict[str, str]:
    """What stands for each resource and annotation in a template's name."""
    variables = {each["name"]: each["expression"] for each in spec(KINDS[0], values)["variables"]}
    terms = variables["terms"].partition(".filter")[0]
    return {word: said for said, word in json.loads(variables["words"]) + json.loads(terms)}


def test_policy_and_program_have_the_same_words() -> None:
    assert words() == template.words(SETTINGS)
    without = {**CLAIMS, "settings": {"gpu-offer": "dra"}}
    known = template.words(settings_file.parse("", "config.toml"))
    assert words(without) == {word: said for word, said in known.items() if said}


def test_policy_writes_the_names_and_the_label_that_the_program_follows() -> None:
    text = json.dumps(spec(KINDS[0]))
    assert f'"{template.PREFIX}\\"'.replace('"v', '\\"v') in text
    assert f'\\"{maker.LABEL}\\"' in text


def test_annotations_that_choose_gpus_are_all_refused() -> None:
    text = " ".join(each["expression"] for each in spec(KINDS[1])["validations"])
    chosen = (
        *known.USE_UUID,
        *known.NOT_UUID,
        *known.USE_MODEL,
        *known.NOT_MODEL,
    )
    assert set(re.findall(r'"((?:vcuda\.io|nvidia\.com)/[a-z-]+)"', text)) >= set(chosen)
    assert set(re.findall(r'startsWith\("([a-z]+/)"', text)) == set(known.TENANCY_PREFIXES)


@pytest.mark.parametrize("kind", KINDS)
def test_policies_fail_for_no_pod_of_other_namespaces(kind: str) -> None:
    selector = {"matchLabels": {"old": "yes"}}
    values = {**DRA, "claims": {"fromResources": True, "namespaceSelector": selector}}
    found = spec(kind, values)
    assert found["matchConstraints"]["namespaceSelector"] == selector
    assert found["failurePolicy"] == "Ignore"


@pytest.mark.parametrize("values", [DRA, {"claims": {"fromResources": True}}])
def test_nothing_is_rendered_without_dra_or_without_the_value(values: Any) -> None:
    assert CLAIM_TEMPLATES not in {each["metadata"]["name"] for each in rendering.objects(values)}
