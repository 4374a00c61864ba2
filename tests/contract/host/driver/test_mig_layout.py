"""`vcuda mig-layout`: layouts of nvidia-mig-parted's own file, on a software H100 in MIG mode."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contract.host.driver.test_instances import foreign
from support.gpu.mig_node import MigNode
from support.gpu.mig_tables import layout
from vcuda_hook.cli import main
from vcuda_hook.mig import plan
from vcuda_hook.mig.parted_file import Part
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger import claim, instance_records
from vcuda_oci.ledger.claim import Claim
from vcuda_oci.ledger.instance_records import Held
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.placement.rules import Rules

FILE = """\
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  all-1g.10gb:
    - devices: all
      mig-enabled: true
      mig-devices:
        "1g.10gb": 7
  mixed:
    - devices: [0]
      mig-enabled: true
      mig-devices:
        "1g.10gb": 2
        "2g.20gb": 1
        "3g.40gb": 1
"""


class Box:
    def __init__(self, folder: Path) -> None:
        self.node = MigNode(folder)
        self.file, self.config = folder / "layouts.yaml", folder / "config.toml"
        self.file.write_text(FILE)
        state, root = self.node.ledger.state_dir, self.node.driver.root
        self.config.write_text(f'state-dir = "{state}"\ndriver-root = "{root}"\n')

    def vcuda(self, *words: str) -> int:
        return main.main(["--config", str(self.config), "mig-layout", str(self.file), *words])

    def static(self) -> set[str]:
        state = self.node.ledger.state_dir
        return {held.id for held in instance_records.read(state, instance_records.STATIC)}

    def names(self) -> list[str]:
        known = {one.id: one.name for one in layout().profiles}
        return sorted(known[profile] for _, profile, _ in self.node.instances().values())


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_layout_is_made_kept_and_replaced_by_the_next(box: Box, capsys: Any) -> None:
    assert box.vcuda("mixed", "--dry-run") == 0
    assert (box.names(), "would be created: 3g.40gb at " in capsys.readouterr().out) == ([], True)
    box.node.facts()
    assert box.vcuda("mixed") == 0
    mixed = box.node.instances()
    assert box.names() == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
    assert box.vcuda("mixed") == 0
    assert (box.node.instances(), "4 stay, 0 destroyed" in capsys.readouterr().out) == (mixed, True)
    box.node.sweep(set())
    assert box.node.instances() == mixed  # no sweep ends them
    assert box.vcuda("all-1g.10gb") == 0
    assert box.names() == ["1g.10gb"] * 7
    assert len(set(box.node.instances()) & set(mixed)) == 2
    assert {gpu.uuid for gpu in box.node.facts().gpus if gpu.mig} == set(box.node.instances())


def test_mig_device_of_a_reused_number_is_known_after_the_layout(box: Box) -> None:
    for profile in ("3g.40gb", "4g.40gb"):
        wanted = f'"1g.10gb": 0\n        "{profile}": 1'
        box.file.write_text(FILE.replace('"1g.10gb": 7', wanted))
        assert box.vcuda("all-1g.10gb") == 0
        assert {gpu.uuid for gpu in box.node.facts().gpus if gpu.mig} == set(box.node.instances())


def test_dry_run_changes_nothing_and_takes_released_instances_for_gone(
    box: Box, capsys: Any
) -> None:
    box.node.claim("box", 50)
    with box.node.ledger:
        box.node.ledger.remove("box")  # its instance is left to the next sweep
    lost = Held("lost", box.node.gpus[0], 19, 6, 1, (), box.node.library, "MIG-lost")
    (Path(box.node.ledger.state_dir) / instance_records.STATIC).mkdir()
    instance_records.write(box.node.ledger.state_dir, lost, instance_records.STATIC)
    before = box.node.instances(), box.node.records(), box.static()
    assert box.vcuda("all-1g.10gb", "--dry-run", "--json") == 0
    assert (box.node.instances(), box.node.records(), box.static()) == before
    (planned,) = json.loads(capsys.readouterr().out)
    assert box.vcuda("all-1g.10gb", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{**planned, "dry_run": False}]
    created = [(each["profile"], each["start"]) for each in planned["created"]]
    assert sorted(created) == [("1g.10gb", start) for start in range(7)]
    assert (planned["uuid"], planned["mig_mode"]) == (box.node.gpus[0], True)
    assert (box.node.records(), "lost" in box.static(), len(box.names())) == (set(), False, 7)


def test_share_of_a_former_instance_refuses_the_next_layout(box: Box, capsys: Any) -> None:
    assert box.vcuda("mixed") == 0
    made = box.node.instances()
    largest = next(uuid for uuid, (_, profile, _) in made.items() if profile == 9)
    wanted = Claim(Owner("box", "box"), Request.of(10, gpus=(largest,)), ["/bin/false"], 1)
    claim.claim(box.node.ledger, box.node.facts(), wanted, Rules())
    for dry in (["--dry-run"], []):
        assert box.vcuda("all-1g.10gb", *dry) == 1
        assert "an instance of the former layout is the share of box" in capsys.readouterr().err
    assert box.node.instances() == made
    with box.node.ledger:
        box.node.ledger.remove("box")
    assert box.vcuda("all-1g.10gb") == 0


def test_only_root_makes_layouts(box: Box, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert box.vcuda("mixed") == 1
    assert capsys.readouterr().err == "vcuda: vcuda mig-layout: needs root; run it as root\n"
    assert box.names() == []


def test_instances_of_others_and_of_containers_stay(box: Box, capsys: Any) -> None:
    own = foreign(box.node, "3g.40gb", 4)
    held = box.node.claim("box", 10).shares[0].uuid
    assert box.vcuda("all-1g.10gb") == 1
    assert "that vcuda did not make for a layout" in capsys.readouterr().err
    assert set(box.node.instances()) == {own, held}
    assert box.vcuda("mixed") == 0  # wants one of each, and two more
    assert box.names() == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
    assert {own, held} < set(box.node.instances())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("all-disabled", "is in MIG mode, and the layout wants the other"),
        ("none", "has no layout 'none'"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_made(
    box: Box, name: str, why: str, capsys: Any
) -> None:
    assert box.vcuda(name) == 1
    assert why in capsys.readouterr().err
    assert box.names() == []


def test_kill_at_any_step_leaves_what_the_next_call_completes(box: Box, capsys: Any) -> None:
    step = 1
    while box.node.killed(step, lambda: box.vcuda("mixed")):
        assert box.vcuda("mixed") == 0
        assert box.names() == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
        assert all(box.node.instances())  # each has its MIG device
        box.file.write_text(FILE.replace('"1g.10gb": 7', '"1g.10gb": 0'))
        assert box.vcuda("all-1g.10gb") == 0
        assert box.names() == []
        assert instance_records.read(box.node.ledger.state_dir, instance_records.STATIC) == []
        step += 3
    assert step > 10


def test_killed_layout_takes_no_instance_that_a_container_gets_after_it(box: Box) -> None:
    step, empty = 1, FILE.replace('"1g.10gb": 7', '"1g.10gb": 0')
    full = FILE.replace('"1g.10gb": 7', '"1g.10gb": 6')
    while box.node.killed(step, lambda: box.vcuda("all-1g.10gb")):
        held = box.node.claim("box", 10).shares[0].uuid
        box.file.write_text(empty)
        box.vcuda("all-1g.10gb")
        assert held in box.node.instances()
        box.node.release("box")
        assert box.vcuda("all-1g.10gb") == 0
        box.file.write_text(full)
        step += 9
    assert step > 10


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "is no YAML"),
        ("mig-configs: 2020-99-99", "is no YAML"),
        ("a: &a [x]\nmig-configs: [*a, *a]", "has YAML aliases"),
        ('{"version": ' + "9" * 5000 + "}", "is no YAML"),
    ],
    ids=["deep", "date", "aliases", "digits"],
)
def test_file_that_is_no_layout_is_refused_in_one_line(
    box: Box, text: str, why: str, capsys: Any
) -> None:
    box.file.write_text(text)
    assert box.vcuda("mixed") == 1
    assert why in capsys.readouterr().err


def test_file_may_be_a_link_as_in_a_mounted_config_map(box: Box, tmp_path: Path) -> None:
    real = tmp_path / "..data"
    box.file.rename(real)
    box.file.symlink_to(real)
    assert box.vcuda("mixed") == 0


def test_json_and_yaml_of_the_file_are_one(box: Box) -> None:
    box.file.write_text(json.dumps(yaml.safe_load(FILE)))
    assert (box.vcuda("mixed"), len(box.names())) == (0, 4)


_NAMES = [profile.name for profile in layout().profiles]


@given(st.dictionaries(st.sampled_from(_NAMES), st.integers(1, 7), max_size=3), st.data())
def test_plan_never_touches_others_and_gives_exactly_the_layout(
    wanted: dict[str, int], data: st.DataObject
) -> None:
    now = layout("GPU-0", "H100", (19, 6), (14, 4))
    ours = data.draw(st.lists(st.sampled_from(now.taken), unique=True))
    try:
        found = plan.plan(Part(None, (), True, wanted), now, ours)
    except VcudaError:
        return
    assert set(found.destroy) <= set(ours)
    after = [one for one in now.taken if one not in found.destroy]
    after += [(one.profile.id, one.start, one.profile.width) for one in found.create]
    used = [at for _, start, width in after for at in range(start, start + width)]
    assert len(used) == len(set(used))
    ids = {one.name: one.id for one in now.profiles}
    assert sorted(id for id, _, _ in after) == sorted(
        ids[name] for name, count in wanted.items() for _ in range(count)
    )
