"""Annotations between scheduler and node, written and read; malformed ones are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_oci.ledger import decision
from vcuda_oci.ledger.decision import Decision
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_plugin.kube import node_gpus
from vcuda_plugin.kube.node_gpus import NodeGpus

SHARES = st.builds(
    GpuShare, st.text(max_size=100), st.integers(1, (1 << 64) - 1), st.integers(1, 100)
)
DECISIONS = st.builds(
    Decision,
    st.dictionaries(st.text(), st.lists(SHARES, min_size=1, max_size=5), max_size=5),
    st.dictionaries(st.text(), st.text(), max_size=3),
)


@given(DECISIONS)
def test_a_decision_is_read_as_it_was_written(made):
    read = decision.parse(made.dump())
    assert (read.containers, read.words) == (made.containers, made.words)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"containers":[]}',
        '{"containers":{"a":[]}}',
        "[" * 100_000,
        '{"containers":{"a":[{"uuid":"G","core_percent":0,"memory_bytes":1}]}}',
        '{"containers":{"a":[{"uuid":"G","core_percent":true,"memory_bytes":1}]}}',
        '{"containers":{"a":[{"uuid":"G","core_percent":1,"memory_bytes":18446744073709551616}]}}',
        '{"containers":{"a":[{"core_percent":1,"memory_bytes":1}]}}',
        '{"containers":{},"words":{"policy":1}}',
        '{"containers":{"a":[{"uuid":"%s","core_percent":1,"memory_bytes":1}]}}' % ("G" * 101),
    ],
)
def test_invalid_decision_is_refused(text):
    with pytest.raises(ValueError):
        decision.parse(text)


def test_a_node_publishes_its_gpus_and_the_scheduler_reads_them():
    published = NodeGpus(
        [Gpu("GPU-a", 0, -1, 1 << 30, "H100"), Gpu("GPU-b", 1, -1, 1 << 31, "H200")],
        {"GPU-a": 1},
        {"GPU-b": "lost"},
        [[0, 1], [1, 0]],
        1.5,
    )
    read = node_gpus.parse(published.dump())
    assert [gpu.__dict__ for gpu in read.gpus] == [gpu.__dict__ for gpu in published.gpus]
    assert (read.numa, read.unhealthy, read.distances, read.overcommit) == (
        published.numa,
        published.unhealthy,
        published.distances,
        published.overcommit,
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"gpus":[1]}',
        '{"gpus":[],"distances":[[0]]}',
        "[" * 100_000,
        '{"gpus":[{"uuid":"G","index":0,"model":"m","memory_bytes":1}],"distances":[[0,1]]}',
        '{"gpus":[],"overcommit":"nan"}',
        '{"gpus":[{"uuid":"G","index":0,"model":"m","memory_bytes":1e999}]}',
    ],
)
def test_an_annotation_without_gpus_is_refused(text):
    with pytest.raises(ValueError):
        node_gpus.parse(text)
