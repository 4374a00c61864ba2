"""The node agent offers MIG devices, but not those that were created for one container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.host.test_instances import foreign
from support.mig_node import MigNode
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.gpus.inventory import Inventory, _Watch


def test_a_containers_own_instance_is_not_offered(tmp_path: Path) -> None:
    node = MigNode(tmp_path)
    static, own = foreign(node, "1g.10gb", 0), node.claim("own", 10)
    config = tmp_path / "config.toml"
    config.write_text(f'state-dir = "{node.ledger.state_dir}"\n')
    offered: list[Inventory] = []
    sample: dict[str, Any] = {
        "gpus": [gpu.__dict__ for gpu in node.facts().gpus],
        **{"numa": {}, "failing": {}, "xids": [], "silent": {}, "sensors": {}},
        **{"distances": None, "driver": "", "cuda": ""},
    }
    _Watch(settings_file.load(str(config)), offered.append).see(sample, "")
    assert own.shares[0].uuid in {gpu["uuid"] for gpu in sample["gpus"]}
    assert [gpu.uuid for gpu in offered[0].gpus] == [static]
