"""etcd, API server and kube-scheduler with the extender, on a private host's loopback."""

from __future__ import annotations

import os
import signal
import subprocess

from support.private_host import PrivateHost, wait_until

# An address of the private host's own loopback: nothing outside reaches it.
ADDRESS = "10.96.0.1"
SERVER = f"https://{ADDRESS}:6443"
NODE = "node-1"
SCHEDULER = "vcuda-scheduler"

KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}", certificate-authority: {pki}/ca.crt}}}}]
users: [{{name: u, user: {{client-certificate: {pki}/{name}.crt, client-key: {pki}/{name}.key}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""

# The extender's entry is the chart's, over plain HTTP: both are on one loopback.
SCHEDULER_CONFIG = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: {kubeconfig}}}
leaderElection: {{leaderElect: false}}
profiles: [{{schedulerName: {scheduler}}}]
extenders:
- urlPrefix: http://127.0.0.1:3456/scheduler
  filterVerb: predicates
  prioritizeVerb: priorities
  bindVerb: bind
  preemptVerb: preempt
  weight: 1
  nodeCacheCapable: true
  ignorable: false
  managedResources:
  - {{name: tencent.com/vcuda-core}}
  - {{name: tencent.com/vcuda-memory}}
"""


class Service:
    """A daemon of a private host, which a test can end and start again."""

    def __init__(self, host: PrivateHost, name: str, *command: str) -> None:
        self.host, self.name, self.command = host, name, command
        self.start()

    def start(self) -> None:
        self._process = self.host.daemon(self.command, self.name + ".log")

    def pid(self) -> int:
        """nsenter forks into the pid namespace: its one child is the daemon."""
        with open(f"/proc/{self._process.pid}/task/{self._process.pid}/children") as children:
            return int((children.read().split() or [str(self._process.pid)])[0])

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            os.kill(self.pid(), number)
            self._process.wait(60)

    def log(self) -> str:
        return self.host.read(self.name + ".log")


class ControlPlane:
    """programs: a folder with Kubernetes' programs. extender: its command, without a kubeconfig."""

    def __init__(self, host: PrivateHost, programs: str, extender: list[str]) -> None:
        self.host, self.programs = host, programs
        self.pki = host.path("pki")
        os.mkdir(self.pki)
        host.check(["ip", "address", "add", ADDRESS + "/32", "dev", "lo"])
        self._certify()
        self._etcd = Service(
            host,
            "etcd",
            self._program("etcd"),
            "--data-dir=" + host.path("etcd"),
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
        )
        self._api = Service(host, "apiserver", self._program("kube-apiserver"), *self._api_words())
        wait_until(self._serves, "the API server, see apiserver.log", 120)
        self.extender = Service(host, "extender", *extender, *self._as("admin"), "--insecure")
        text = SCHEDULER_CONFIG.format(kubeconfig=self.kubeconfig("scheduler"), scheduler=SCHEDULER)
        self._scheduler = Service(
            host,
            "scheduler",
            self._program("kube-scheduler"),
            "--config=" + host.write("scheduler.yaml", text),
            "--secure-port=0",
        )

    def close(self) -> None:
        for service in (self._scheduler, self.extender, self._api, self._etcd):
            service.end()

    def kubeconfig(self, name: str) -> str:
        return os.path.join(self.pki, name + ".conf")

    def kubectl(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [self._program("kubectl"), "--kubeconfig", self.kubeconfig("admin"), *words]
        return subprocess.run(
            self.host.inside(command),
            env=self.host.environment(),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def _as(self, name: str) -> list[str]:
        return ["--kubeconfig", self.kubeconfig(name)]

    def _serves(self) -> bool:
        return self.kubectl("get", "--raw", "/readyz").returncode == 0

    def _program(self, name: str) -> str:
        return os.path.join(self.programs, name)

    def _api_words(self) -> list[str]:
        pki = self.pki
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            "--secure-port=6443",
            "--bind-address=0.0.0.0",
            "--advertise-address=" + ADDRESS,
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt",
            f"--service-account-key-file={pki}/ca.crt",
            f"--service-account-signing-key-file={pki}/ca.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            # No controller manager runs: none makes service accounts or removes a node's taints.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={pki}/admin.crt",
            f"--kubelet-client-key={pki}/admin.key",
            "--cert-dir=" + self.host.path("apiserver-certs"),
        ]

    def _certify(self) -> None:
        """A certificate authority, and each account's certificate and kubeconfig."""
        self._openssl(
            "req", "-x509", *self._new_key("ca"), "-subj", "/CN=ca", "-out", f"{self.pki}/ca.crt"
        )
        for name, subject in (
            ("apiserver", "/CN=kube-apiserver"),
            ("admin", "/O=system:masters/CN=admin"),
            ("scheduler", "/CN=system:kube-scheduler"),
            ("kubelet", f"/O=system:nodes/CN=system:node:{NODE}"),
        ):
            self._openssl(
                "req",
                "-x509",
                *self._new_key(name),
                "-subj",
                subject,
                "-CA",
                f"{self.pki}/ca.crt",
                "-CAkey",
                f"{self.pki}/ca.key",
                "-addext",
                f"subjectAltName=DNS:{NODE},IP:127.0.0.1,IP:{ADDRESS}",
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-out",
                f"{self.pki}/{name}.crt",
            )
            text = KUBECONFIG.format(server=SERVER, pki=self.pki, name=name)
            self.host.write(f"pki/{name}.conf", text)

    def _new_key(self, name: str) -> list[str]:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        return [*curve, "-keyout", f"{self.pki}/{name}.key"]

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)
