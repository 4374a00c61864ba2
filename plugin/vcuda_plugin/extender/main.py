"""``vcuda-scheduler-extender``: the command line of the program that runs beside kube-scheduler."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from typing import TYPE_CHECKING

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError

from .. import dependencies
from .http import certificates

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = names.EXTENDER_PROGRAM
PORT = 3456


def command() -> int:
    return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["simulate"]:
        from ..simulate.command import main as simulate

        for number in (signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        return simulate(argv[1:])
    if argv[:1] == ["certificates"]:
        return certificates.main(argv[1:])
    arguments = _parser().parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=f"{PROGRAM}: %(message)s")
    try:
        # Imported late: --help and --version work without the server's dependencies.
        from .serve import run
    except ModuleNotFoundError as error:
        dependencies.end_without(error, PROGRAM)
    try:
        run(arguments)
    except VcudaError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        PROGRAM,
        description="Tells kube-scheduler which nodes have room for a pod's GPUs, and puts it on "
        "them. SIGTERM ends it; what it knows it reads from the API server when it starts.",
        epilog=f"example: {PROGRAM} --kubeconfig ~/.kube/config --tls-cert tls/server.crt "
        f"--tls-key tls/server.key --tls-client-ca tls/ca.crt. `{PROGRAM} certificates tls` makes "
        f"these files. What `{PROGRAM} simulate` does: `vcuda simulate --help`.",
    )
    parser.add_argument(
        "--config", metavar="FILE", default=names.DEFAULT_CONFIG, help="default: %(default)s"
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default="",
        help="how to reach the API server; default: the service account of the pod it runs in",
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default=f"127.0.0.1:{PORT}", help="default: %(default)s"
    )
    parser.add_argument(
        "--quota-config",
        metavar="FILE",
        default="",
        help="JSON: QuotaConfigMapName, QuotaConfigMapNamespace, GPUModelLabel, GPUPoolLabel; "
        "default: gpuquota in kube-system",
    )
    parser.add_argument(
        "--lease",
        metavar="NAMESPACE/NAME",
        default="",
        help="of several extenders only the one that holds this Lease binds; default: it is alone",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="speak TLS, with this certificate")
    parser.add_argument("--tls-key", metavar="FILE", help="and this key")
    parser.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        help="answer only clients with a certificate of this authority",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="require no client certificate: any client that reaches the address can bind any pod",
    )
    parser.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="by which it may be called, may be repeated; default: on a loopback address its own "
        "names, elsewhere any",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {names.VERSION}")
    return parser


if __name__ == "__main__":
    sys.exit(command())
