"""The public trace's own files: the fields read, and refused lines."""

from __future__ import annotations

from typing import Any

import pytest

from support.ledger.samples import GIB
from vcuda_oci.model.errors import VcudaError
from vcuda_plugin.simulate import nodes
from vcuda_plugin.simulate.trace import Trace, parse
from vcuda_plugin.simulate.trace_pod import TracePod

HEADING = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,"
    "qos,pod_phase,creation_time,deletion_time,scheduled_time"
)
NODES = """\
sn,cpu_milli,memory_mib,gpu,model
host-1,64000,262144,2,P100
host-2,32000,262144,0,
host-3,96000,786432,4,V100M32
"""


def test_pod_of_the_public_trace_follows_its_line() -> None:
    lines = [
        HEADING,
        "late,6000,12288,1,460,,LS,Running,50,150,60",
        "cpu,20000,65536,0,0,,LS,Running,10,90,10",
        "several,88000,327680,8,1000,V100M16|V100M32,Burstable,Succeeded,20,120,20",
        "never ran,4000,15258,1,225,T4,BE,Pending,30,45,",
        "stays,4000,15258,1,1000,,BE,Running,40,,41",
    ]
    assert parse([line.replace("never ran", "never-ran") for line in lines], "t") == Trace(
        [
            TracePod("several", 20, 100, 100, None, 8, 0, "V100M16,V100M32", "burstable"),
            TracePod("never-ran", 30, 15, 23, None, 1, 0, "T4", "be"),
            TracePod("stays", 40, None, 100, None, 1, 0, "", "be"),
            TracePod("late", 50, 90, 46, None, 1, 0, "", "ls"),
        ],
        without_gpu=1,
    )


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("p,1,1,1,,,LS,Running,0,1,0", "no gpu_milli; write name, cpu_milli, "),
        ("p,1,1,1,1500,,LS,Running,0,1,0", "gpu_milli cannot be '1500'; "),
        ("p,1,1,65,1000,,LS,Running,0,1,0", "num_gpu cannot be '65'; "),
        ("p,1,1,one,1000,,LS,Running,0,1,0", "num_gpu cannot be 'one'; "),
        ("p,1,1,1,1000,,LS,Running,,1,0", "no creation_time; "),
        ("p,1,1,1,1000,,LS,Running,5,4,5", "deletion_time cannot be '4'; "),
        ("p,1,1,1,1000,,LS,Running,5,9,4", "scheduled_time cannot be '4'; "),
        (",1,1,1,1000,,LS,Running,0,1,0", "no name; "),
        ("p q,1,1,1,1000,,LS,Running,0,1,0", "name cannot be 'p q'; "),
        ("p,1,1,1,1000,,LS,Running,0,1", "10 fields below a heading of 11; "),
    ],
)
def test_a_line_that_the_public_trace_would_not_have_is_refused(line: str, error: str) -> None:
    with pytest.raises(VcudaError) as refused:
        parse([HEADING, line], "t")
    assert str(refused.value).startswith("t:2: " + error)


def test_a_column_that_the_public_trace_does_not_have_is_named() -> None:
    with pytest.raises(VcudaError, match=r"^t:2: unknown field 'gpus'; write "):
        parse([HEADING + ",gpus", "p,1,1,1,1000,,LS,Running,0,1,0,2"], "t")


def test_nodes_of_the_public_trace_stand_beside_described_ones(tmp_path: Any) -> None:
    path = f"{tmp_path}/nodes.csv"
    with open(path, "w") as file:
        file.write(NODES)
    found = nodes.parse([path, "1x1:H100:80GiB"])
    parsed = [
        (node.name, [(g.model, g.memory_bytes // GIB) for g in node.usable]) for node in found
    ]
    assert parsed == [
        ("host-1", [("P100", 16)] * 2),
        ("host-3", [("V100M32", 16)] * 4),
        ("node-00002", [("H100", 80)]),
    ]
    assert [node.group.model for node in found] == ["P100", "V100M32", "H100"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (NODES + "host-4,1,1,two,P100\n", ":5: gpu cannot be 'two'; write sn, cpu_milli, "),
        (NODES + "host-4,1,1,2,\n", ":5: no model; "),
        (NODES + "host-4,1,1,33,P100\n", ":5: more than 32 GPUs; "),
        (NODES + "ho st,1,1,2,P100\n", ":5: sn cannot be 'ho st'; "),
        (NODES + "host-1,1,1,2,P100\n", ": a node twice; "),
        ("sn,cpu_milli,memory_mib,gpu,model\nhost-2,1,1,0,\n", ": no GPUs in it; "),
        ("name,gpu\n", ":1: neither JSON nor a heading of CSV; begin with a heading, of sn, "),
    ],
)
def test_a_bad_list_of_nodes_is_one_line_with_its_number(
    text: str, error: str, tmp_path: Any
) -> None:
    path = f"{tmp_path}/nodes.csv"
    with open(path, "w") as file:
        file.write(text)
    with pytest.raises(VcudaError) as refused:
        nodes.parse([path])
    assert str(refused.value).startswith(path + error)
