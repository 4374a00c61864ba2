"""Traces of pods: the fields read, and refused lines."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.ledger.samples import GIB
from vcuda_oci.model.errors import VcudaError
from vcuda_plugin.simulate import command, fgd_trace, nodes, trace
from vcuda_plugin.simulate.trace import Trace, dump, parse
from vcuda_plugin.simulate.trace_pod import TracePod

PODS = [
    TracePod("a", 0, None, 30, 4 * GIB),
    TracePod("b", 1.5, 60, 100, None, 2, 7, "H100", "team"),
    TracePod("c", 3, 0.5, 20, None, 2),
]
CLUSTER = ["--nodes", "1x1:H100:80GiB"]
CSV = """\
name, arrival, duration, core, memory, count, priority, model, namespace
c,3,0.5,20,,2,,,
a,0,,30,4GiB,,,,

b,1.5,60,,,2,7,H100,team
"""
JSON = """\
{"name": "a", "core": 30, "memory": "4GiB"}
{"name": "b", "arrival": 1.5, "duration": 60, "count": 2, "priority": 7, "model": "H100", \
"namespace": "team"}
{"name": "c", "arrival": 3, "duration": 0.5, "core": 20, "count": 2, "memory": null}
"""


def test_json_lines_and_csv_say_the_same_and_what_is_saved_is_read_again() -> None:
    assert parse(CSV.splitlines(), "t") == parse(JSON.splitlines(), "t") == Trace(PODS)
    assert parse(dump(PODS), "t") == Trace(PODS)


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([], "t: no pods in it; write JSON lines, or CSV with a heading"),
        (
            ["pod,core", "a,30"],
            "t:1: neither JSON nor a heading of CSV; begin with a heading, of name, ",
        ),
        (
            ["name,core", "a,30,1"],
            "t:2: 3 fields below a heading of 2; write as many; one may be empty",
        ),
        (['{"name": "a"}', "", '{"name": "b"'], "t:3: not JSON: "),
        (['{"name": "a"}', "b,30"], "t:2: not JSON: "),
        (
            ['{"name": "a"}', '{"name": "a"}'],
            "t:2: a second pod 'a'; name it otherwise: the first is in line 1",
        ),
        (["name,cores", "a,30"], "t:2: unknown field 'cores'; write name, arrival, "),
        (["name,core", "a,thirty"], "t:2: core cannot be 'thirty'; write "),
        (['{"name": "a", "core": 30.5}'], "t:1: core cannot be '30.5'; "),
        (['{"name": "a", "core": true}'], "t:1: core cannot be 'True'; "),
        (['{"name": "a", "arrival": NaN}'], "t:1: arrival cannot be 'nan'; "),
        (["name,duration", "a,-1"], "t:2: duration cannot be '-1'; "),
        (["name,memory", "a,much"], "t:2: memory 'much' is not a size such as 4GiB; "),
        (["name,core,count", "a,150,2"], "t:2: core 150 of each of 2 GPUs; "),
        (["name,count", "a,65"], "t:2: more than 64 GPUs; ask for fewer"),
        (['"name', "a"], "t:1: not CSV: "),
    ],
)
def test_a_bad_trace_is_one_line_with_its_number(lines: list[str], error: str) -> None:
    with pytest.raises(VcudaError) as refused:
        parse(lines, "t")
    assert str(refused.value).startswith(error)


def test_a_trace_that_cannot_be_read_is_one_line(tmp_path: Any) -> None:
    with pytest.raises(VcudaError, match="cannot be read: No such file"):
        trace.read(f"{tmp_path}/none")
    with open(f"{tmp_path}/binary", "wb") as file:
        file.write(b"name\n\xff\xfe")
    with pytest.raises(VcudaError, match="not UTF-8"):
        trace.read(f"{tmp_path}/binary")


@settings(max_examples=80)
@given(st.lists(st.sampled_from([*CSV.splitlines(), *JSON.splitlines()]) | st.text(), max_size=5))
def test_nonsense_is_refused_and_never_breaks_the_reader(lines: list[str]) -> None:
    try:
        assert parse(lines, "t")
    except VcudaError as refused:
        assert refused.where.startswith("t")


@pytest.mark.parametrize(
    "spec", ["8:H100:80GiB", "0x8:H:1GiB", "1x99:H:1GiB", "1x8:H:no", "1x8:H", "1x8:H:1GiB@"]
)
def test_a_cluster_that_makes_no_sense_is_refused(spec: str) -> None:
    with pytest.raises(VcudaError, match=f"^--nodes {spec}: "):
        nodes.parse([spec])


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--generate", "fgd", "--nodes", "many"], 1, "--nodes many: describes no nodes; "),
        (["--generate", "fgd", *CLUSTER, "--policy", "best"], 1, "--policy: no policy 'best'; "),
        (["--generate", "fgd", *CLUSTER, "--load", "0"], 1, "--load 0.0: no such load; "),
        (["--generate", "fgd", *CLUSTER, "--pods", "0"], 1, "--pods 0: no such trace; "),
        (["/none/trace", *CLUSTER], 1, "/none/trace: cannot be read: "),
        (["--generate", "fgd", *CLUSTER, "--save", "/none/t"], 1, "/none/t: cannot be written: "),
        (
            ["--generate", "fgd", *CLUSTER, "--quota", "/none/q"],
            1,
            "/none/q: cannot be read: No such file",
        ),
        (CLUSTER, 2, "error: either TRACE or --generate; name one of them"),
        (
            ["trace", "--generate", "fgd", *CLUSTER],
            2,
            "error: either TRACE or --generate; name one of them",
        ),
    ],
)
def test_an_invalid_command_line_is_one_line(
    words: list[str], code: int, line: str, capsys: Any
) -> None:
    try:
        ended: object = command.main(words)
    except SystemExit as error:
        ended = error.code
    captured = capsys.readouterr()
    assert (ended, captured.out) == (code, "")
    assert captured.err.splitlines()[-1].startswith("vcuda simulate: " + line)
    assert code == 2 or captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ": no quotas: "),
        ("[]", ": no quotas: "),
        (
            '{"team": {"quota": {"M40": -1}}}',
            ": no quotas: of 'team': 'M40' cannot have -1 cards; ",
        ),
        ('{"team": 3}', ": no quotas: of 'team': write an object of quota and pool; "),
        ('{"kind": "ConfigMap", "data": {}}', ": no quotas: there is no key gpu_quota; "),
        ('{"kind": "ConfigMap", "data": {"gpu_quota": "{"}}', ": no quotas: gpu_quota is not JSON"),
    ],
)
def test_an_invalid_quota_is_one_line(text: str, error: str, tmp_path: Any, capsys: Any) -> None:
    path = f"{tmp_path}/quota.json"
    with open(path, "w") as file:
        file.write(text)
    assert command.main(["--generate", "fgd", *CLUSTER, "--quota", path]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("vcuda simulate: " + path + error)
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_a_described_cluster_has_its_models_its_sizes_and_its_links() -> None:
    found = nodes.parse(["2x2:H100:80GiB", "1x4:T4:16GiB:2"])
    gpus_of_nodes = [
        [(gpu.model, gpu.memory_bytes // GIB) for gpu in node.usable] for node in found
    ]
    assert gpus_of_nodes == [[("H100", 80)] * 2, [("H100", 80)] * 2, [("T4", 16)] * 4]
    assert len({gpu.uuid for node in found for gpu in node.usable}) == 8
    near, far = nodes.LINKED, nodes.FAR
    assert found[2].reported.distances == [
        [0, near, far, far],
        [near, 0, far, far],
        [far, far, 0, near],
        [far, far, near, 0],
    ]
    assert found[0].reported.distances is None


def test_generated_pods_have_the_public_traces_shape() -> None:
    pods = fgd_trace.coming_and_going(1, 100, 20_000)
    sizes = Counter(pod.count if pod.core == 100 else 0 for pod in pods)
    percent = {size: round(100 * count / len(pods), 1) for size, count in sizes.items()}
    # 37.8, 48.0, 0.2, 0.2 and 0.5 of the 86.7 % that ask for a GPU
    for size, expected in {0: 43.6, 1: 55.4, 2: 0.2, 4: 0.2, 8: 0.6}.items():
        assert abs(percent[size] - expected) < 1
    # Little's law: pods a second x how long x how large is what is asked for at a time.
    asked = sum(pod.gpus * (pod.duration or 0) for pod in pods) / len(pods)
    assert abs(asked - 100) < 5
    filling = fgd_trace.filling(1, 100)
    assert sum(pod.gpus for pod in filling[:-1]) < 100 <= sum(pod.gpus for pod in filling)
    assert fgd_trace.filling(1, 100) == filling != fgd_trace.filling(2, 100)
