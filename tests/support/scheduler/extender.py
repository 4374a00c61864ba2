"""Run the extender with a fake API server, and call it as kube-scheduler does."""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from support.api_server.fake_api_server import FakeApiServer
from support.files import ROOT
from support.scheduler.clusters import gpus_of, node

PROGRAM = ("-m", "vcuda_plugin.extender.main")


def shown_by_scheduler(reason: str) -> str:
    """The text that kube-scheduler 1.36 writes to the pod's status and Event.

    It uses an extender's reason as a format string without arguments.
    Source: Go, package fmt, "Format errors".
    """
    verb = r"%[-+# 0]*[0-9.]*(.?)"
    escapes = {"%": "%", "": "%!(NOVERB)"}
    return re.sub(verb, lambda found: escapes.get(found[1], f"%!{found[1]}(MISSING)"), reason)


class Extender:
    """tls: holds the client's certificate; None if the extender runs with --insecure."""

    tls: ssl.SSLContext | None = None

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port

    def connect(self) -> http.client.HTTPConnection:
        if self.tls:
            kind = functools.partial(http.client.HTTPSConnection, context=self.tls)
            return kind("127.0.0.1", self.port, timeout=120)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        with contextlib.closing(self.connect()) as connection:
            data = body if isinstance(body, bytes | None) else orjson.dumps(body)
            if headers is None:
                headers = {} if data is None else {"Content-Type": "application/json"}
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def post(self, verb: str, body: Any) -> Any:
        code, answer = self.call("POST", "/scheduler/" + verb, body)
        assert code == 200, answer
        found = orjson.loads(answer)
        if verb in ("predicates", "bind"):
            for reasons in (
                found,
                found.get("FailedNodes"),
                found.get("FailedAndUnresolvableNodes"),
            ):
                for key, value in (reasons or {}).items():
                    if isinstance(value, str):
                        reasons[key] = shown_by_scheduler(value)
        return found

    def filter(self, pod: dict[str, Any], *nodes: str) -> Any:
        return self.post("predicates", {"Pod": pod, "Nodes": None, "NodeNames": nodes})

    def bind(self, pod: dict[str, Any], node: str) -> str:
        metadata = pod["metadata"]
        asked = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"]}
        return str(self.post("bind", {**asked, "PodUID": metadata["uid"], "Node": node})["Error"])

    def inspect(self, node: str) -> Any:
        code, answer = self.call("GET", "/inspect/" + node)
        return orjson.loads(answer) if code == 200 else None

    def wait_ready(self, seconds: float = 60) -> None:
        self.wait(lambda: self.call("GET", "/readyz")[0] == 200, seconds)

    def wait(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until the extender has received what the API server sends on several watches."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(0.02)


@contextlib.contextmanager
def running(
    api: FakeApiServer,
    folder: Any,
    *words: str,
    program: Sequence[str] = PROGRAM,
    settings: str = "",
) -> Iterator[Extender]:
    """Start an extender that listens; it may not be ready. program: Python's arguments. settings:
    more lines of its settings file.
    """
    config = f"{folder}/config.toml"
    with open(config, "w") as file:
        file.write(f'gpu-resource = "nvidia.com/gpu"\n{settings}\n')
    options = ["--config", config, "--kubeconfig", api.kubeconfig(f"{folder}/kubeconfig")]
    options += ["--listen", "127.0.0.1:0", *words]
    if not any(word.startswith("--tls-client-ca") for word in words):
        options.append("--insecure")
    with process(folder, *options, program=program) as started:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"listening on 127.0.0.1:(\d+)", log(folder))):
            assert time.monotonic() < deadline and started.poll() is None, log(folder)
            time.sleep(0.01)
        yield Extender(started, int(found.group(1)))


def client(folder: str) -> ssl.SSLContext:
    """kube-scheduler's TLS settings, from the files that `certificates` wrote."""
    context = ssl.create_default_context(cafile=f"{folder}/ca.crt")
    context.load_cert_chain(f"{folder}/client.crt", f"{folder}/client.key")
    return context


@contextlib.contextmanager
def ready(api: FakeApiServer, folder: Any, *words: str, settings: str = "") -> Iterator[Extender]:
    with running(api, folder, *words, settings=settings) as started:
        started.wait_ready()
        yield started


@contextlib.contextmanager
def api_of_two_nodes() -> Iterator[FakeApiServer]:
    """Node a has two GPUs of 16 GiB, node b one."""
    api_server = FakeApiServer()
    with api_server.running():
        api_server.put(node("a", gpus_of("a", 16, 16)), node("b", gpus_of("b", 16)))
        yield api_server


def log(folder: Any) -> str:
    """Standard error of the extender that was started last in this folder."""
    with open(f"{folder}/log") as file:
        return file.read()


@contextlib.contextmanager
def process(
    folder: Any, *words: str, program: Sequence[str] = PROGRAM
) -> Iterator[subprocess.Popen[bytes]]:
    path = f"{ROOT}/oci:{ROOT}/runtime_hook:{ROOT}/plugin"
    command: Sequence[str] = [sys.executable, *program, *words]
    environment = {**os.environ, "PYTHONPATH": path}
    with open(f"{folder}/log", "w") as file:
        started = subprocess.Popen(command, env=environment, stderr=file)
    try:
        yield started
    finally:
        if started.poll() is None:
            started.kill()
        started.wait()
