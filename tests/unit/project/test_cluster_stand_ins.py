"""The post-renderer of the cluster's tests changes nothing but what it adds."""

from __future__ import annotations

import io

import pytest

from cluster.kubernetes import stand_ins

DIGEST = "3312699760835e16"


def test_a_digest_that_looks_like_a_number_stays_quoted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f'kind: ConfigMap\nmetadata: {{annotations: {{digest: "{DIGEST}"}}}}\n'
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    monkeypatch.setattr("sys.argv", ["stand_ins", "/bin"])
    stand_ins.main()
    assert f'"digest": "{DIGEST}"' in capsys.readouterr().out
