"""The extender follows its OpenAPI page for any request."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from support.api_server.fake_api_server import FakeApiServer
from support.scheduler import extender, extender_openapi
from support.scheduler.clusters import container, gpus_of, node, pod
from vcuda_oci.model.allocation import GpuShare

# As long as it takes on a machine with other work.
SECONDS = 250
# The verbs read their fields in any case and leave out what they do not know: what a page calls
# nonsense need not be refused, so that is not asked.
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,positive_data_acceptance,unsupported_method"
)


def api_server() -> FakeApiServer:
    api = FakeApiServer()
    api.add(node("a", gpus_of("a", 16, 16)))
    api.add(node("b", gpus_of("b", 16)))
    shares = {"main": [GpuShare("GPU-a-0", 1, 60)]}
    api.add(pod("p", container(core=60), node="a", shares=shares))
    return api


def test_extender_answers_any_request_as_its_openapi_page_states(tmp_path: Any) -> None:
    api = api_server()
    with api.running(), extender.running(api, tmp_path) as running:
        running.wait_ready()
        (tmp_path / "page.json").write_text(json.dumps(extender_openapi.PAGE))
        url = f"http://127.0.0.1:{running.port}"
        command = [sys.executable, "-m", "schemathesis.cli", "run", "page.json", "--url", url]
        command += ["--checks", CHECKS]
        limits = ["--max-examples", "30", "--generation-deterministic", "--no-color"]
        result = subprocess.run(
            [*command, *limits, "--phases", "examples,coverage,fuzzing"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert result.returncode == 0, result.stdout
        assert "Traceback" not in extender.log(tmp_path)
        running.wait_ready()
        assert [gpu["core_free"] for gpu in running.inspect("a")["gpus"]] == [40, 100]
