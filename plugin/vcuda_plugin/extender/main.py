"""``vcuda-scheduler-extender``: the command line of the program that runs beside kube-scheduler."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError

from .. import dependencies
from ..kube import options
from ..simulate import command as simulate
from .claims import command as claims
from .http import certificates

PROGRAM = names.EXTENDER_PROGRAM
PORT = 3456


def command() -> int:
    return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["simulate"]:
        for number in (signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        return simulate.main(argv[1:])
    if argv[:1] == ["certificates"]:
        return certificates.main(argv[1:])
    if argv[:1] == ["claim-templates"]:
        return claims.main(argv[1:])
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
        description="Tells kube-scheduler which nodes fit a pod's GPU request, and binds the pod "
        "to a node and its GPUs. It keeps no state on disk: it reads the API server at each start. "
        "SIGTERM ends it.",
        epilog=f"example: {PROGRAM} --kubeconfig ~/.kube/config --tls-cert tls/server.crt "
        f"--tls-key tls/server.key --tls-client-ca tls/ca.crt. `{PROGRAM} certificates tls` makes "
        f"these files. What `{PROGRAM} simulate` does: `vcuda simulate --help`.",
    )
    options.add_to(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=f"127.0.0.1:{PORT}",
        help="address that kube-scheduler calls; default: %(default)s",
    )
    parser.add_argument(
        "--quota-config",
        metavar="FILE",
        default="",
        help="JSON that names the quotas' ConfigMap and the node labels: QuotaConfigMapName, "
        "QuotaConfigMapNamespace, GPUModelLabel, GPUPoolLabel; default: gpuquota in kube-system",
    )
    parser.add_argument(
        "--lease",
        metavar="NAMESPACE/NAME",
        default="",
        help="with several extenders: only the holder of this Lease binds pods; default: no Lease, "
        "for one extender",
    )
    parser.add_argument(
        "--agents",
        metavar="NAMESPACE",
        default="",
        help="namespace of the node agents' pods and Leases: a node gets no pod while its agent is "
        "away; default: only the kubelet's report counts",
    )
    parser.add_argument(
        "--evict",
        action="store_true",
        help="evict pods of lower priority for a pod that fits no single GPU while the node's sums "
        "suffice, which kube-scheduler does not; default: such a pod waits",
    )
    parser.add_argument(
        "--restart-after-outage",
        metavar="PROGRAM",
        default="",
        help="end this program, of the same pod and user, once the API server is back after "
        "5 seconds or more: kube-scheduler, started again, goes on at once; default: none",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="server certificate, PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="the certificate's key, PEM")
    parser.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        help="answer only clients with a certificate of this authority, PEM",
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
        help="allowed value of a request's Host header; may be repeated; default: on a loopback "
        "address the loopback's names, else any",
    )
    parser.add_argument(
        "--page",
        metavar="HOST:PORT",
        default="",
        help="address of the cluster page, for people with a token of the cluster; default: none",
    )
    parser.add_argument(
        "--page-tls-cert",
        metavar="FILE",
        help="certificate of the cluster page, PEM; default: --tls-cert",
    )
    parser.add_argument("--page-tls-key", metavar="FILE", help="that certificate's key, PEM")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {names.VERSION}")
    return parser


if __name__ == "__main__":
    sys.exit(command())
