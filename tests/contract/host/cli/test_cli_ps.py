"""`vcuda ps`: templates, filters, orders, narrow terminals, and the table that is shown again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from contract.host.cli.test_cli_ledger import HOSTILE, Node, node_with
from support.files import ROOT, write
from support.host.terminal import Terminal
from support.ledger.samples import GIB, record
from support.ledger.tenants import Tenants
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.suspension import Suspension

_START = (
    f"import sys; sys.path[:0] = ['{ROOT}/oci', '{ROOT}/runtime_hook']; "
    "from vcuda_hook.cli.main import main; sys.exit(main(sys.argv[1:]))"
)
WEB, BATCH = "a" * 64, "b" * 64


@pytest.fixture
def node(tmp_path: Any, monkeypatch: Any) -> Node:
    """With a container of Docker's on GPU 1, one of Podman's on both, and one of a pod on GPU 0."""
    node = node_with(tmp_path, monkeypatch)
    docker = write(
        f"{tmp_path}/{WEB}/config.v2.json",
        json.dumps({"ID": WEB, "Name": "/web", "Config": {"Image": "a.example/web:1"}}),
    )
    podman = {"id": BATCH, "names": ["batch"], "metadata": '{"image-name": "a.example/batch:2"}'}
    listed = write(f"{tmp_path}/containers.json", json.dumps([podman]))
    first, second = GpuShare("GPU-0", GIB, 10), GpuShare("GPU-1", 2 * GIB, 40, "elastic", 80)
    node.add_record(record(WEB, engine={"file": docker}, shares=[second], created=1700000002.0))
    both = [first, second.replaced(core_percent=20)]
    node.add_record(
        record(BATCH, engine={"file": listed}, shares=both, created=1700000001.0), "paused"
    )
    pod = {"uid": "u", "namespace": "ml", "name": "train", "container": "main", "sandbox_id": "s"}
    more = {"pod": pod, "engine": {"image": "a.example/train:3"}, "created": 1700000003.0}
    node.add_record(record("pod-u.main", container_id="c" * 64, shares=[first], **more))
    return node


def printed(node: Node, capsys: Any, *words: str) -> list[str]:
    assert node.vcuda("ps", *words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return list(out.splitlines())


def test_a_template_has_a_line_for_each_container_and_gpu(node: Node, capsys: Any) -> None:
    template = "{{.Name}}|{{ .Image }}|{{.GPU}}|{{.Core}}|{{.State}}|{{.Namespace}}"
    assert printed(node, capsys, "--format", template) == [
        "web|a.example/web:1|1|40 %|running|",
        "batch|a.example/batch:2|0|10 %|paused|",
        "batch|a.example/batch:2|1|20 %|paused|",
        "ml/train/main|a.example/train:3|0|10 %|running|ml",
    ]


@pytest.mark.parametrize("id", ["web", "a-namespace/a-pod-with-a-long-name/its-container"])
def test_suspended_container_shows_where_its_memory_is_and_since_when(
    node: Node, capsys: Any, monkeypatch: Any, id: str
) -> None:
    since = time.time() - 7200.5
    off = Suspension("suspended", "idle", since, {"GPU-0": 3 * GIB // 2})
    node.add_record(
        record(id.replace("/", "."), suspension=off, shares=[GpuShare("GPU-0", 79 * GIB, 30)])
    )
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    lines = printed(node, capsys)
    (line,) = [line for line in lines if "suspended" in line]
    assert "host 1.5 GiB / 79 GiB" in line and "suspended 2h" in line
    assert all(len(each) <= 80 for each in lines)
    words = ("--format", "{{.State}}|{{.Memory}}|{{.Suspended}}", "--filter", "status=suspended")
    assert printed(node, capsys, *words) == [
        "suspended|host 1.5 GiB / 79 GiB|suspended 2h, 1.5 GiB on host"
    ]


def test_a_table_template_is_aligned_below_headings(node: Node, capsys: Any) -> None:
    words = ("--format", "table {{.Names}}\\t{{.MemoryLimit}}", "--filter", "gpu=1")
    assert printed(node, capsys, *words) == ["NAMES  MEMORY LIMIT", "web    2 GiB", "batch  2 GiB"]


def test_json_templates_are_whole_lines(node: Node, capsys: Any) -> None:
    assert node.vcuda("ps", "--json") == 0
    entries = json.loads(capsys.readouterr().out)
    for form in ("json", "{{json .}}"):
        lines = printed(node, capsys, "--format", form)
        assert [json.loads(line)["id"] for line in lines] == [entry["id"] for entry in entries]
        assert json.loads(lines[0]).keys() == entries[0].keys()
    assert printed(node, capsys, "--format", "{{json .Name}}", "--filter", "name=we") == ['"web"']


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{{.Nmae}}", "--format: no such field '{{.Nmae}}'; "),
        ("{{if .Name}}x{{end}}", "--format: no such field '{{if .Name}}'; "),
        ("Name", "Name: not a template; "),
        ("{{.Name}} {{.ID", "{{.Name}} {{.ID: not a template; "),
    ],
)
def test_a_bad_template_is_refused_with_the_fields(
    node: Node, capsys: Any, template: str, error: str
) -> None:
    assert node.vcuda("ps", "--format", template) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("vcuda: " + error) and ".MemoryUsed" in err


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (["name=a"], [BATCH, "pod-u.main"]),
        (["name=web", "name=batch"], [WEB, BATCH]),
        (["name=web", "status=paused"], []),
        (["status=paused"], [BATCH]),
        (["image=example/tr"], ["pod-u.main"]),
        (["namespace=ml", "pod=train"], ["pod-u.main"]),
        (["id=cccc"], ["pod-u.main"]),
        (["gpu=0"], [BATCH, "pod-u.main"]),
        (["gpu=GPU-1"], [WEB, BATCH]),
        (["policy=fixed"], [BATCH, "pod-u.main"]),
    ],
)
def test_filters_select_and_quiet_prints_each_id_once(
    node: Node, capsys: Any, filters: list[str], ids: list[str]
) -> None:
    words = [word for each in filters for word in ("--filter", each)]
    assert printed(node, capsys, "-q", *words) == ids


@pytest.mark.parametrize("filter", ["colour=red", "name", "name=", "=web"])
def test_an_unknown_filter_is_refused_with_the_keys(node: Node, capsys: Any, filter: str) -> None:
    assert node.vcuda("ps", "--filter", filter) == 1
    assert "keys: id, name, image, namespace, pod, gpu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("order", "ids"),
    [
        ("name", [BATCH, "pod-u.main", WEB]),
        ("gpu", [BATCH, "pod-u.main", WEB]),
        ("created", ["pod-u.main", WEB, BATCH]),
        ("core", [WEB, BATCH, "pod-u.main"]),
        ("state", [BATCH, WEB, "pod-u.main"]),
        ("memory", ["pod-u.main", WEB, BATCH]),
    ],
)
def test_an_order_sorts_by_text_or_the_largest_first(
    node: Node, tmp_path: Any, capsys: Any, order: str, ids: list[str]
) -> None:
    tenants = Tenants(str(tmp_path))
    tenants.uses("pod-u.main", held=GIB)
    tenants.uses(WEB, held=GIB // 2)
    assert printed(node, capsys, "-q", "--sort", order) == ids
    tenants.close()


@pytest.mark.parametrize(
    "words", [["-q", "--json"], ["--format", "json", "--wide"], ["--watch", "--json"]]
)
def test_two_forms_at_once_are_refused(node: Node, capsys: Any, words: list[str]) -> None:
    assert node.vcuda("ps", *words) == 1
    assert capsys.readouterr().err.endswith("; choose one of them\n")


def test_a_hostile_name_begins_no_line_of_a_template(node: Node, capsys: Any) -> None:
    names = {"namespace": "ml\tx", "name": HOSTILE, "container": "main"}
    node.add_record(record("odd", container_id="odd", pod={"uid": "u", **names}))
    words = ("--filter", "id=odd", "--format", "table {{.ID}}\\t{{.Pod}}\\t{{.Namespace}}")
    _, line = printed(node, capsys, *words)
    assert line.startswith("odd  a?[2Jb?c?d?e?f?g?forged  running") and line.endswith("ml?x")


class OnTerminal:
    """`vcuda ps` of the node's settings on a terminal, in a process of its own."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._terminals: list[Terminal] = []

    def ps(self, *words: str, width: int) -> Terminal:
        command = [sys.executable, "-c", _START, "--config", self._node.config, "ps", *words]
        self._terminals.append(Terminal(command, width))
        return self._terminals[-1]

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.close()


@pytest.fixture
def terminal(node: Node) -> Iterator[OnTerminal]:
    made = OnTerminal(node)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (120, "CONTAINER GPU CORE USED MEMORY POLICY STATE AGE"),
        (80, "CONTAINER GPU CORE USED MEMORY STATE AGE"),
        (60, "CONTAINER CORE USED MEMORY STATE"),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns_and_readable_names(
    node: Node, terminal: OnTerminal, width: int, columns: str
) -> None:
    pod = {"uid": "v", "namespace": "machine-learning", "name": "train-7d9f", "container": "main"}
    share = GpuShare("GPU-0", GIB, 10, "best-effort")
    node.add_record(record("pod-v.main", container_id="v1", pod=pod, shares=[share]))
    lines = terminal.ps(width=width).until(lambda lines: "7d9f/main" in "".join(lines))
    assert lines[0].split() == columns.split()
    (shown,) = [line.split()[0] for line in lines if "7d9f/main" in line]
    assert len(shown) >= 24


def test_watch_shows_the_table_again_until_q(node: Node, terminal: OnTerminal) -> None:
    shown = terminal.ps("--watch", "--sort", "name", width=80)
    shown.until(lambda lines: any(line.startswith("web") for line in lines))
    node.add_record(record("later"))
    lines = shown.until(lambda lines: any(line.startswith("later") for line in lines))
    assert lines[0].startswith("vcuda ps  ") and lines[0].endswith("q quits")
    assert [line.split()[0] for line in lines[2:7]] == [
        "batch", "batch", "later", "ml/train/main", "web",
    ]  # fmt: skip
    shown.press("q")
    assert shown.end() == 0


def test_watch_without_a_terminal_is_refused(node: Node, capsys: Any) -> None:
    assert node.vcuda("ps", "--watch") == 1
    assert capsys.readouterr().err == (
        "vcuda: vcuda ps --watch: shows nothing without a terminal; leave it out\n"
    )
