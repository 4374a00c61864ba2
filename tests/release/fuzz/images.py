"""Fuzzers of an image's content: variables, and the files of its loader."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from release.fuzz.properties import check_line
from support.files import write
from support.gpu.driver_root import DriverRoot
from support.ledger.samples import host as some_host
from vcuda_oci.container import image_libraries, request
from vcuda_oci.container.container import container_of
from vcuda_oci.guest.tree import Tree
from vcuda_oci.host import driver_scan, requirements
from vcuda_oci.model import capabilities
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.placement import choose
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system import ldcache

_SETTINGS = ("never", "unprivileged", "always")


class Variables:
    """Words of an image ask for what fits and holds, or are refused in one line.

    As variables, and as the annotations that mean the same.
    """

    def __init__(self, folder: str) -> None:
        self.host = some_host(16, 16)
        self.host.cuda = "12.8"

    def __call__(self, content: bytes) -> None:
        entries = content.decode(errors="replace").split("\0")
        pairs = [entry.partition("=")[::2] for entry in entries]
        for spec in ({"process": {"env": entries}}, {"annotations": dict(pairs)}):
            try:
                self.read(spec)
            except VcudaError as error:
                check_line(error)

    def read(self, spec: Any) -> None:
        env = container_of(spec).environment
        asked = request.find(container_of(spec))
        if asked:
            for setting in _SETTINGS:
                request.counts(asked, setting, False, False)
            answer = choose.choose(self.host.gpus, [], request.parse(asked), Rules())
            if isinstance(answer, choose.Refused):
                raise VcudaError(answer.reason, "placement", "ask for less, or free a share")
            uuids = [share.uuid for share in answer.shares]
            assert len(set(uuids)) == len(uuids) > 0
            for share in answer.shares:
                gpu = self.host.gpu(share.uuid)
                assert gpu and 0 < share.memory_bytes <= gpu.memory_bytes
                assert 0 < share.core_percent <= 100
        allowed = list(capabilities.ALL)
        asked_for = env.get("NVIDIA_DRIVER_CAPABILITIES", "")
        assert capabilities.requested(asked_for, allowed) <= set(allowed)
        requirements.check(env, self.host, self.host.gpus)


class LoaderFiles:
    """Of an ld.so.cache or ld.so.conf only files inside of its root are found.

    The driver root's own cache and the kernel's version are no less strange.
    """

    def __init__(self, folder: str) -> None:
        self.driver = DriverRoot(folder + "/driver").path
        self.bundle = folder + "/bundle"
        self.image = self.bundle + "/rootfs"
        self.spec = {"root": {"path": "rootfs"}}
        for name in ("/usr/lib64/libcuda.so.1", "/opt/x/libcuda.so.1", "/opt/x/libnvidia-ml.so.1"):
            write(self.image + name, "")
        os.symlink("../../../../../../.." + folder, self.image + "/opt/up")
        os.symlink("/opt/x", self.image + "/opt/y")

    def __call__(self, content: bytes) -> None:
        for root in (self.driver, self.image):
            write(root + "/etc/ld.so.cache", content)
        write(self.image + "/etc/ld.so.conf", content)
        write(self.driver + "/proc/driver/nvidia/version", content)
        for name, path in ldcache.entries(content, ("",), (ldcache.X86_64, ldcache.I386)):
            assert path.startswith("/") and "/" not in name and "\0" not in path + name
        names: dict[str, str] = {}
        with contextlib.suppress(VcudaError):  # past the bounds of an image
            container = container_of(self.spec, "", self.bundle)
            with Tree(container.rootfs) as image:
                names = image_libraries.find(
                    image, container, ["libcuda.so.1", "libnvidia-ml.so.1"]
                )
        for path in names:
            assert os.path.realpath(self.image + path) == self.image + path
            assert os.path.isfile(self.image + path)
        with Tree(self.image) as image:
            assert image_libraries.library_folder(image) == "/usr/lib64"
        found = driver_scan.find(self.driver)
        assert found.version == "580.95.05"
        for path in [*found.libraries.values(), *found.libraries_32_bit.values()]:
            assert os.path.realpath(path) == path
            assert path.startswith(self.driver + "/")
