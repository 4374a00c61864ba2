"""Named slices are claimed by the same rules as containers' shares, in specs of any kind."""

from __future__ import annotations

import os
from typing import Any

import pytest

from contract.host.driver.test_cdi import Node
from support.files import write
from support.ledger.samples import GIB
from vcuda_hook.cdi import cdi_kind
from vcuda_hook.cli import main
from vcuda_oci.model import names
from vcuda_oci.pages import page_reader
from vcuda_oci.start import apply_share


@pytest.fixture
def node(tmp_path: Any, monkeypatch: Any) -> Node:
    monkeypatch.setattr(apply_share, "SHIM", write(f"{tmp_path}/lib/libvcuda-abc.so", ""))
    return Node(str(tmp_path), 2)


def test_the_settings_count_for_slices_too(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "shim").touch()
    monkeypatch.setattr(apply_share, "SHIM", f"{tmp_path}/shim")
    settings = 'memory-overcommit = "1.5"\ncontext-memory = "300MiB"\nmeter-copies = "yes"\n'
    node = Node(str(tmp_path), 1, more=settings)
    asked = ["--slice", "a=core:30,memory:14GiB", "--slice", "b=core:30,memory:10GiB"]
    assert node.cdi("generate", *asked) == 0
    assert node.shares() == {
        "cdi@a": [("GPU-0", 30, 14 * GIB)],
        "cdi@b": [("GPU-0", 30, 10 * GIB)],
    }
    for name in ("a", "b"):
        with open(f"{node.ledger.containers}/cdi@{name}/limits", "rb") as file:
            page = page_reader.read_limits(file.read())
        (gpu,) = page.gpus
        page_settings = (page.meter_copies, gpu.context_bytes, bool(gpu.managed_memory))
        assert page_settings == (True, 300 << 20, True)
    assert node.cdi("generate", "--slice", "c=core:30,memory:1GiB") == 1
    assert capsys.readouterr().err.startswith("vcuda: placement: ")


def test_a_spec_of_another_kind_has_the_same_devices_and_keeps_its_kind(
    node: Node, tmp_path: Any
) -> None:
    slices = ("--slice", "train=core:30,memory:5GiB")
    assert node.cdi("generate", *slices) == 0
    ours = node.read()
    node.spec = f"{tmp_path}/cdi/vcuda-nvidia.com-gpu.json"
    assert node.cdi("generate", "--kind", "nvidia.com/gpu") == 0
    assert ours["kind"] == "vcuda.io/gpu"
    assert node.read() == {**ours, "kind": "nvidia.com/gpu"}
    assert node.cdi("generate", "--slice", "infer=core:20") == 0
    assert node.read()["kind"] == "nvidia.com/gpu"
    assert {"train", "infer", "all", "0", "1"} <= set(node.devices())


def test_remove_takes_a_slice_out_of_every_spec_of_vcudas(
    node: Node, tmp_path: Any, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(cdi_kind, "_FOLDER", f"{tmp_path}/cdi")
    monkeypatch.setattr(names, "CDI_SPEC", f"{tmp_path}/cdi/vcuda.json")
    words = ["--config", node.settings, "cdi"]
    assert main.main([*words, "generate", "--slice", "train=core:30"]) == 0
    assert main.main([*words, "generate", "--kind", "nvidia.com/gpu"]) == 0
    specs = ["vcuda-nvidia.com-gpu.json", "vcuda.json"]
    assert sorted(os.listdir(f"{tmp_path}/cdi")) == specs
    capsys.readouterr()
    assert main.main([*words, "remove", "train"]) == 0
    assert capsys.readouterr().out == ("removed nvidia.com/gpu=train\nremoved vcuda.io/gpu=train\n")
    for spec in specs:
        node.spec = f"{tmp_path}/cdi/{spec}"
        assert "train" not in node.devices()


@pytest.mark.parametrize("name", ["nvidia.yaml", "nvidia.json"])
def test_a_second_spec_of_a_kind_in_one_folder_is_refused(
    node: Node, tmp_path: Any, capsys: Any, name: str
) -> None:
    """The CDI library drops each device that two specs of one folder define."""
    text = {
        "nvidia.yaml": "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n",
        "nvidia.json": '{"cdiVersion": "0.5.0",\n "kind": "nvidia.com/gpu", "devices": []}\n',
    }[name]
    other = write(f"{tmp_path}/cdi/{name}", text)
    assert node.cdi("generate", "--kind", "nvidia.com/gpu", "--slice", "train=core:30") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {other}: is of the kind nvidia.com/gpu too, and engines drop devices that two "
        "specs define; remove it, or write another --kind\n"
    )
    assert os.listdir(f"{tmp_path}/cdi") == [name]
    assert node.shares() == {}
    assert node.cdi("generate") == 0


@pytest.mark.parametrize(
    "kind", ["gpu", "nvidia.com/", "/gpu", "a/b/c", "nvidia.com/gpu=0", "-a/b"]
)
def test_unknown_kind_is_refused(node: Node, capsys: Any, kind: str) -> None:
    with pytest.raises(SystemExit):
        node.cdi("generate", f"--kind={kind}")
    assert f"invalid kind '{kind}'; write VENDOR/CLASS" in capsys.readouterr().err
