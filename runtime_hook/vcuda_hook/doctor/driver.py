"""Check the driver's files, the kernel module and the device nodes: present, and of one version?"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from vcuda_oci.host import device_nodes, driver_scan
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files
from vcuda_oci.system.settings_file import Config

from .finding import ERROR, OK, UNKNOWN, Finding, of_error

LOADED, VERSIONS, NODES = "driver", "driver-versions", "device-nodes"
CHECKS = (LOADED, VERSIONS, NODES)
_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_UVM = "nvidia-uvm"


@dataclass
class Driver:
    """root: "" for the host's own. no_library: the error if no library was found.

    versions: of the libraries, by soname; "" if missing. kernel: the module's version; "": not
    loaded. numbers: of the device nodes; None: missing, or not a character device. uvm_major: the
    kernel's number for nvidia-uvm; None: unknown.
    """

    root: str
    no_library: VcudaError | None = None
    versions: dict[str, str] = field(default_factory=dict)
    kernel: str = ""
    numbers: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    uvm_major: int | None = None


def examine(settings: Config) -> list[Finding]:
    driver = read_host(settings.driver_root.rstrip("/"))
    return [loaded(driver), versions(driver), nodes(driver)]


def read_host(root: str, proc: str = "/proc") -> Driver:
    driver = Driver(root)
    try:
        folder = driver_scan.find(root).folder[len(root) :]
    except VcudaError as error:
        driver.no_library = error
    else:
        for soname in _LIBRARIES:
            last = driver_scan.final(root, f"{folder}/{soname}")
            there = os.path.isfile(root + last)
            driver.versions[soname] = last.partition(".so.")[2] if there else ""
    driver.kernel = driver_scan.kernel_version(root)
    for name in (*device_nodes.CONTROL, *(f"nvidia{minor}" for minor in _minors(root))):
        driver.numbers[name] = _number(f"{root}/dev/{name}")
    for line in files.text(f"{proc}/devices").split("\n"):
        number, _, module = line.strip().partition(" ")
        if module == _UVM and number.isdigit():
            driver.uvm_major = int(number)
    return driver


def loaded(driver: Driver) -> Finding:
    if driver.no_library:
        return of_error(LOADED, driver.no_library)
    if not driver.kernel:
        where = f"{driver.root}/proc/driver/nvidia/version"
        hint = "run 'modprobe nvidia'; where that fails, 'dmesg' says why"
        return Finding(LOADED, ERROR, "the kernel's driver is not loaded", where, hint)
    return Finding(LOADED, OK, f"version {driver.kernel}", driver.root or "/")


def versions(driver: Driver) -> Finding:
    if driver.no_library or not driver.kernel:
        return _not_judged(VERSIONS)
    for soname, version in driver.versions.items():
        if not version:
            what = f"no {soname} beside the driver's other libraries"
            return Finding(VERSIONS, ERROR, what, driver.root or "/", "reinstall the whole driver")
        if version != driver.kernel:
            what = f"{soname} is of version {version}, the kernel's driver of {driver.kernel}"
            hint = "reboot, or unload the nvidia modules and load them again"
            return Finding(VERSIONS, ERROR, what, driver.root or "/", hint)
    return Finding(VERSIONS, OK, "libraries and the kernel's driver are of one version")


def nodes(driver: Driver) -> Finding:
    if not driver.kernel:
        return _not_judged(NODES)
    missing = [f"{driver.root}/dev/{name}" for name, number in driver.numbers.items() if not number]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        what = f"{verb} not there, or no character device"
        return Finding(NODES, ERROR, what, ", ".join(missing), _make_nodes(driver))
    uvm = driver.numbers[_UVM]
    if uvm and driver.uvm_major is not None and uvm[0] != driver.uvm_major:
        what = f"has major {uvm[0]}, and the kernel's module {driver.uvm_major}"
        hint = "remove it, then " + _make_nodes(driver)
        return Finding(NODES, ERROR, what, f"{driver.root}/dev/{_UVM}", hint)
    return Finding(NODES, OK, f"all {len(driver.numbers)} are there")


def _make_nodes(driver: Driver) -> str:
    chroot = f"chroot {driver.root} " if driver.root else ""
    return f"run '{chroot}nvidia-modprobe -c 0 -u' and create the container again"


def _not_judged(name: str) -> Finding:
    return Finding(name, UNKNOWN, "not checked: there is no driver", hint="fix that first")


def _minors(root: str) -> list[int]:
    """The minor numbers of the kernel driver's GPUs. Source: its README, "The /proc interface"."""
    folder = f"{root}/proc/driver/nvidia/gpus"
    try:
        gpus = sorted(os.listdir(folder))
    except OSError:
        return []
    minors = []
    for gpu in gpus:
        for line in files.text(f"{folder}/{gpu}/information").split("\n"):
            key, _, value = line.partition(":")
            if key == "Device Minor" and value.strip().isdigit():
                minors.append(int(value))
    return minors


def _number(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    number = status.st_rdev
    return (os.major(number), os.minor(number)) if stat.S_ISCHR(status.st_mode) else None
