"""`vcuda doctor` on the host's swap: where the GPU memory of suspended containers could be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vcuda_hook.doctor import finding, swap
from vcuda_oci.system import settings_file

HEADER = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


class Host:
    """A root with the swap file /swap on a device, of which sysfs says what a test writes there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir()
        (root / "swap").touch()
        (root / "proc/swaps").write_text(HEADER + "/swap file\t\t1024\t\t0\t\t-2\n")
        number = os.stat(root / "swap").st_dev
        self.link = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
        self.link.parent.mkdir(parents=True)

    def device(self, name: str, uuid: str = "", below: tuple[Path, ...] = ()) -> Path:
        folder = self.root / "sys/devices" / name
        folder.mkdir(parents=True)
        if uuid:
            (folder / "dm").mkdir()
            (folder / "dm/uuid").write_text(uuid + "\n")
        (folder / "slaves").mkdir()
        for each in below:
            (folder / "slaves" / each.name).symlink_to(each)
        return folder

    def lies_on(self, device: Path) -> list[str]:
        self.link.symlink_to(device)
        return swap.open_devices(str(self.root))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_disk_is_named(host: Host) -> None:
    assert host.lies_on(host.device("sda2")) == ["/swap"]


def test_a_volume_on_disks_is_named(host: Host) -> None:
    disk = host.device("sda2")
    assert host.lies_on(host.device("dm-1", "LVM-a", (disk,))) == ["/swap"]


def test_encrypted_swap_is_not_named(host: Host) -> None:
    assert host.lies_on(host.device("dm-0", "CRYPT-PLAIN-swap", (host.device("sda2"),))) == []


def test_a_volume_on_an_encrypted_disk_is_not_named(host: Host) -> None:
    encrypted = host.device("dm-0", "CRYPT-LUKS2-a", (host.device("sda2"),))
    assert host.lies_on(host.device("dm-1", "LVM-a", (encrypted,))) == []


def test_a_volume_is_named_if_one_of_its_disks_is_not_encrypted(host: Host) -> None:
    encrypted = host.device("dm-0", "CRYPT-LUKS2-a", (host.device("sda2"),))
    assert host.lies_on(host.device("dm-1", "LVM-a", (encrypted, host.device("sdb")))) == ["/swap"]


def test_memory_is_not_named(host: Host) -> None:
    assert host.lies_on(host.device("zram0")) == []


def test_swap_on_a_device_that_sysfs_does_not_know_is_named(host: Host) -> None:
    assert swap.open_devices(str(host.root)) == ["/swap"]


def test_a_host_or_a_kernel_without_swap_is_fine(host: Host) -> None:
    (host.root / "proc/swaps").write_text(HEADER)
    assert swap.open_devices(str(host.root)) == []
    (host.root / "proc/swaps").unlink()
    assert swap.open_devices(str(host.root)) == []


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("", finding.INFO),
        ('idle-suspend = "10m"\n', finding.WARNING),
        ('memory-overcommit = "2"\noversubscribe = "rotate"\n', finding.WARNING),
        ('oversubscribe = "rotate"\n', finding.INFO),
    ],
)
def test_it_is_a_warning_where_the_settings_suspend(
    monkeypatch: pytest.MonkeyPatch, text: str, severity: str
) -> None:
    monkeypatch.setattr(swap, "open_devices", lambda: ["/dev/sda2"])
    (found,) = swap.examine(settings_file.parse(text, "config.toml"))
    assert (found.severity, found.where) == (severity, "/dev/sda2")
    assert "swapoff /dev/sda2" in found.hint


def test_without_such_swap_it_is_fine() -> None:
    assert [each.severity for each in swap.judge([], suspends=True)] == [finding.OK]
