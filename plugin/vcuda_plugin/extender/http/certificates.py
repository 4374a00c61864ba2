"""``vcuda-scheduler-extender certificates``: make the TLS files of the extender and its client.

Makes an authority for one extender, a certificate for the extender and one for its client,
kube-scheduler. The authority's key is deleted, so that it can sign no further certificate.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError

FILES = ("ca.crt", "server.crt", "server.key", "client.crt", "client.key")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_DAYS = "3650"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def main(argv: Sequence[str]) -> int:
    arguments = parser().parse_args(argv)
    try:
        make(arguments.folder, arguments.name or LOOPBACK_NAMES)
    except VcudaError as error:
        print(f"{names.EXTENDER_PROGRAM}: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        f"{names.EXTENDER_PROGRAM} certificates",
        description="Makes certificates for the extender and for kube-scheduler, its client: "
        f"{', '.join(FILES)}. Changes nothing where all of them exist. Needs openssl.",
        epilog=f"example: {names.EXTENDER_PROGRAM} certificates /etc/vcuda-tls",
    )
    made.add_argument("folder", metavar="FOLDER", help="where the files are made")
    made.add_argument(
        "--name",
        metavar="NAME",
        action="append",
        help="name or address that kube-scheduler calls; may be repeated; default: the loopback's",
    )
    return made


def make(folder: str, server_names: Sequence[str]) -> None:
    """Make the files unless all exist.

    Raises VcudaError: openssl is missing or fails, or the folder cannot be written.
    """
    if all(os.path.exists(f"{folder}/{name}") for name in FILES):
        return
    openssl = shutil.which("openssl")
    if openssl is None:
        raise VcudaError("is not in PATH", "openssl", "install the package openssl")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        # In the same file system, so that a rename puts each file in place whole.
        with tempfile.TemporaryDirectory(prefix=".new.", dir=folder) as new:
            _sign(openssl, new, server_names)
            for name in FILES:
                os.rename(f"{new}/{name}", f"{folder}/{name}")
    except OSError as error:
        what = f"cannot be written: {os.strerror(error.errno or 0)}"
        raise VcudaError(what, folder, "name a folder that this user may write") from error


def _sign(openssl: str, folder: str, server_names: Sequence[str]) -> None:
    known_as = ",".join(f"{'IP' if _is_address(name) else 'DNS'}:{name}" for name in server_names)
    by_authority = ("-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=CA:false")
    certificates = {
        # openssl req -x509 makes an authority by default.
        "ca": ("-addext", "keyUsage=critical,keyCertSign"),
        "server": (
            *by_authority,
            "-addext",
            f"subjectAltName={known_as}",
            "-addext",
            "extendedKeyUsage=serverAuth",
        ),
        "client": (*by_authority, "-addext", "extendedKeyUsage=clientAuth"),
    }
    for name, words in certificates.items():
        command = [openssl, "req", "-x509", *_KEY, "-days", _DAYS]
        command += ["-subj", f"/CN={names.EXTENDER_PROGRAM} {name}"]
        command += ["-keyout", f"{name}.key", "-out", f"{name}.crt", *words]
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if made.returncode:
            lines = made.stderr.strip().splitlines() or [f"exit {made.returncode}"]
            raise VcudaError(f"cannot make {name}.crt: {lines[-1]}", openssl, "take openssl 3")
        os.chmod(f"{folder}/{name}.key", 0o600)
    os.unlink(f"{folder}/ca.key")


def _is_address(name: str) -> bool:
    return ":" in name or name.replace(".", "").isdigit()
