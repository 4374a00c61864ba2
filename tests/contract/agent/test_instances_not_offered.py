"""The node agent offers MIG devices, but not those that were created for one container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.host.test_instances import foreign
from support.mig_node import MigNode
from support.mig_tables import profiles
from vcuda_oci.ledger import instance_records
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.gpus.inventory import Inventory, _Watch


def offered(node: MigNode, folder: Path) -> list[str]:
    config = folder / "config.toml"
    config.write_text(f'state-dir = "{node.ledger.state_dir}"\n')
    seen: list[Inventory] = []
    sample: dict[str, Any] = {
        "gpus": [gpu.__dict__ for gpu in node.facts().gpus],
        "profiles": {uuid: [profile.fields() for profile in profiles()] for uuid in node.gpus},
        **{"numa": {}, "failing": {}, "xids": [], "silent": {}, "sensors": {}},
        **{"distances": None, "driver": "", "cuda": ""},
    }
    _Watch(settings_file.load(str(config)), seen.append).see(sample, "")
    return [gpu.uuid for gpu in seen[0].gpus]


def test_a_containers_own_instance_is_not_offered(tmp_path: Path) -> None:
    node = MigNode(tmp_path)
    static, own = foreign(node, "1g.10gb", 0), node.claim("own", 10)
    assert own.shares[0].uuid in {gpu.uuid for gpu in node.facts().gpus}
    assert offered(node, tmp_path) == [static]


def test_no_gpu_in_mig_mode_is_offered_beside_a_broken_record(tmp_path: Path) -> None:
    node = MigNode(tmp_path)
    node.claim("own", 10)
    assert offered(node, tmp_path) == node.gpus
    folder = Path(node.ledger.state_dir) / instance_records.FOLDER
    (folder / "other.json").write_text("{")
    assert offered(node, tmp_path) == []
