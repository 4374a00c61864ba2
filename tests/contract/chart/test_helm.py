"""Install, upgrade and remove the chart with Helm on a fake API server."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.chart import rendering
from contract.chart.fake_cluster import FakeCluster
from contract.chart.rendering import AGENT, HELM, REPOSITORY
from release.docs.commands import of_page, pages
from support.needed import skip_or_fail


class Release:
    """Of the chart, in a cluster."""

    def __init__(self, server: str, cluster: FakeCluster, home: Path) -> None:
        self.cluster, self._server = cluster, server
        self._env = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def __call__(self, line: str) -> str:
        """One of the pages' commands, or another."""
        words = [HELM, f"--kube-apiserver={self._server}", *shlex.split(line)[1:]]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, env=self._env, cwd=REPOSITORY
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def objects(self) -> set[tuple[str, str]]:
        """Kind and name of the chart's objects in the cluster."""
        release = "meta.helm.sh/release-name"
        metadata = [(e["kind"], e["metadata"]) for e in self.cluster.objects.values()]
        return {(k, m["name"]) for k, m in metadata if release in m.get("annotations", {})}

    def image(self) -> str:
        daemons = "/apis/apps/v1/namespaces/vcuda/daemonsets"
        spec = self.cluster.objects[f"{daemons}/{AGENT}"]["spec"]["template"]["spec"]
        return str(spec["containers"][0]["image"])


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    if not os.path.exists(HELM):
        skip_or_fail("helm is missing; run 'make prepare'")
    cluster = FakeCluster()
    cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vcuda"}})
    with cluster.listening() as server:
        yield Release(server, cluster, tmp_path)


def typed(verb: str) -> str:
    """The plainest command of that verb on the documentation's pages."""
    lines = {command.text for page in pages() for command in of_page(page)}
    return min((line for line in lines if line.startswith(f"helm {verb} ")), key=len)


def test_helm_installs_the_chart_and_removes_it_with_the_release(release: Release) -> None:
    before = dict(release.cluster.objects)
    release(typed("install"))
    rendered = rendering.objects({}, "1.32")
    assert release.objects() == {(each["kind"], each["metadata"]["name"]) for each in rendered}
    assert release.image() == f"REGISTRY/{AGENT}:0.1.0"
    release(typed("uninstall"))
    assert release.cluster.objects == before


def test_upgrade_retains_the_values_and_can_be_rolled_back(
    release: Release,
) -> None:
    release(typed("install"))
    there = release.objects()
    first = dict(release.cluster.objects)
    release(typed("upgrade") + " --set settings.placement=spread")
    assert (release.objects(), release.image()) == (there, f"REGISTRY/{AGENT}:0.1.0")
    key = "/api/v1/namespaces/vcuda/configmaps/vcuda"
    assert 'placement = "spread"' in release.cluster.objects[key]["data"]["config.toml"]
    release(typed("upgrade") + " --set registry=registry.example")
    assert release.image() == f"registry.example/{AGENT}:0.1.0"
    release("helm rollback vcuda 1 --namespace vcuda")
    assert {k: first[k] for k in first if "secrets" not in k}.items() <= (
        release.cluster.objects.items()
    )


def test_without_its_namespace_helm_is_refused_and_nothing_is_there(release: Release) -> None:
    release.cluster.delete("/api/v1/namespaces/vcuda")
    before = dict(release.cluster.objects)
    with pytest.raises(AssertionError, match='namespaces "vcuda" not found'):
        release(typed("install"))
    assert release.cluster.objects == before
