"""The node agent offers MIG devices, but not those that were created for one container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.host.driver.test_instances import foreign
from support.gpu.mig_node import MigNode
from support.softgpu.softgpu_host import SoftGpu
from vcuda_oci.host import host
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import instance_records
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.gpus import own_instances
from vcuda_plugin.agent.gpus.gpu_probe import Probe
from vcuda_plugin.agent.gpus.inventory import Inventory, _Watch


def sampled(facts: Host, state_dir: str) -> dict[str, Any]:
    own = own_instances.uuids(state_dir, facts)
    return {**Probe(facts.library, facts).sample(), "own": own}


def inventory_by(sample: dict[str, Any], state_dir: str) -> Inventory:
    config = Path(state_dir) / "config.toml"
    config.write_text(f'state-dir = "{state_dir}"\n')
    seen: list[Inventory] = []
    _Watch(settings_file.load(str(config)), seen.append).see(sample, "")
    return seen[0]


def offered_by(sample: dict[str, Any], state_dir: str) -> list[str]:
    return [gpu.uuid for gpu in inventory_by(sample, state_dir).gpus]


def offered(facts: Host, state_dir: str) -> list[str]:
    return offered_by(sampled(facts, state_dir), state_dir)


def test_a_containers_own_instance_is_not_offered(tmp_path: Path) -> None:
    node = MigNode(tmp_path)
    static, own = foreign(node, "1g.10gb", 0), node.claim("own", 10)
    assert own.shares[0].uuid in {gpu.uuid for gpu in node.facts().gpus}
    assert offered(node.facts(), node.ledger.state_dir) == [static]


def test_places_of_all_instances_are_reported_for_the_scheduler(tmp_path: Path) -> None:
    node = MigNode(tmp_path)
    node.claim("small", 10)
    node.claim("large", 42)
    state_dir = node.ledger.state_dir
    seen = inventory_by(sampled(node.facts(), state_dir), state_dir)
    (gpu,) = {uuid for uuid, places in seen.places.items() if places}
    by_id = {profile.id: profile.name for profile in seen.profiles[gpu]}
    assert sorted(by_id[id] for id, _, _ in seen.places[gpu]) == ["1g.10gb", "3g.40gb"]


def test_instance_that_ends_after_the_sample_is_not_offered_either(tmp_path: Path) -> None:
    node = MigNode(tmp_path)
    node.claim("own", 10)
    before = sampled(node.facts(), node.ledger.state_dir)
    node.release("own")
    assert offered_by(before, node.ledger.state_dir) == node.gpus


def test_agent_ends_instances_with_another_path_of_nvml(tmp_path: Path) -> None:
    """As the host's records do, where the agent is a pod."""
    node = MigNode(tmp_path)
    node.claim("own", 10)
    (held,) = instance_records.read(node.ledger.state_dir)
    instance_records.write(node.ledger.state_dir, held.replaced(library="/nowhere/libnvidia-ml.so"))
    with node.ledger:
        node.ledger.remove("own")
    own_instances.end_left_over(node.ledger.state_dir, node.library)
    assert (node.instances(), node.records()) == ({}, set())


def test_no_gpu_in_mig_mode_is_offered_beside_a_broken_record(tmp_path: Path) -> None:
    node = MigNode(tmp_path)
    node.claim("own", 10)
    assert offered(node.facts(), node.ledger.state_dir) == node.gpus
    folder = Path(node.ledger.state_dir) / instance_records.FOLDER
    (folder / "other.json").write_text("{")
    assert offered(node.facts(), node.ledger.state_dir) == []


def test_a_gpu_in_mig_mode_without_profiles_is_not_offered(tmp_path: Path) -> None:
    driver = SoftGpu(tmp_path, "--gpus", "2", "--mig", "1=")
    facts = host.load(str(driver.root), f"{tmp_path}/host.json")
    assert [gpu.divided for gpu in facts.gpus] == [False, True]
    assert offered(facts, str(tmp_path)) == [facts.gpus[0].uuid]
