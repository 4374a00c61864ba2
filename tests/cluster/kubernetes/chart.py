"""Our chart, installed by helm into the tests' cluster."""

from __future__ import annotations

import glob
import json
import os
import shutil
import sys
from typing import Any

from contract.chart.rendering import AGENT, CHART, EXTENDER, HELM
from support.files import ROOT
from support.host.private_host import PrivateHost, Result
from support.product import Product

NAMESPACE = "vcuda"
# What images of Debian would have, and the venv's packages, which our images take from Debian.
_OF_THE_IMAGES = ("/usr", "/lib", "/lib64", "/etc/ssl")
# Our images have their settings in /etc; what is installed for a test has them elsewhere.
_PROGRAM = """#!/usr/bin/python3 -IB
import sys
sys.path[:0] = {path!r}
from vcuda_oci.model import names
names.DEFAULT_CONFIG = "/etc/vcuda/config.toml"
from vcuda_plugin.{room}.main import main
sys.exit(main(sys.argv[1:]))
"""


class Chart:
    """programs: a folder with kube-scheduler."""

    def __init__(self, host: PrivateHost, kubeconfig: str, product: Product, programs: str) -> None:
        self._host, self._kubeconfig = host, kubeconfig
        # Of the moment at which the product was installed.
        self._folder = shutil.copytree(CHART, host.path("chart"))
        (packages,) = glob.glob(ROOT + "/build/venv/lib/python3*/site-packages")
        os.mkdir(host.path("image-bin"))
        library = product.prefix + "/lib/vcuda/python"
        for room, name, more in (("agent", AGENT, []), ("extender", EXTENDER, [packages])):
            text = _PROGRAM.format(path=[library, *more], room=room)
            host.write("image-bin/" + name, text, 0o755)
        path = [host.path("image-bin"), product.prefix + "/bin", programs, "/usr/bin", "/bin"]
        self._stand_ins = [
            ":".join(path),
            *_OF_THE_IMAGES,
            host.path("image-bin"),
            product.prefix,
            packages,
            programs,
        ]

    def install(self, values: dict[str, Any]) -> None:
        """Install the chart, or upgrade it."""
        file = self._host.write("values.json", json.dumps(values))
        words = [f"--post-renderer-args={word}" for word in (_script(), *self._stand_ins)]
        done = self._helm(
            "upgrade",
            "--install",
            "vcuda",
            self._folder,
            "--values=" + file,
            "--post-renderer=" + sys.executable,
            *words,
        )
        assert done.rc == 0, done.stderr

    def test(self) -> None:
        """Run `helm test`."""
        done = self._helm("test", "vcuda")
        assert done.rc == 0, done.stdout + done.stderr
        assert "Phase:          Succeeded" in done.stdout

    def uninstall(self) -> None:
        done = self._helm("uninstall", "vcuda", "--wait")
        assert done.rc == 0, done.stderr

    def _helm(self, *words: str) -> Result:
        where = ["--kubeconfig", self._kubeconfig, "--namespace", NAMESPACE]
        return self._host.run([HELM, *words, *where], timeout=120)


def _script() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand_ins.py")
