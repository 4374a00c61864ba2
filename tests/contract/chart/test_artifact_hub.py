"""What Artifact Hub shows of the chart. Source: its "Helm annotations" page; pkg/hub/pkg.go."""

from __future__ import annotations

from pathlib import Path

import tomllib
import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "packaging" / "chart"
CATEGORIES = [
    "ai-machine-learning",
    "database",
    "integration-delivery",
    "monitoring-logging",
    "networking",
    "security",
    "skip-prediction",
    "storage",
    "streaming-messaging",
]


def test_artifact_hub_can_show_the_chart_with_icon_licence_and_category() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    shown = {key.partition("/")[2]: text for key, text in chart["annotations"].items()}
    assert shown["category"] in CATEGORIES
    assert shown["license"] == project["license"] == "Apache-2.0"
    # As long as a version may break what the one before it promised.
    assert shown["prerelease"] == str(chart["version"].startswith("0.")).lower()
    assert chart["version"] == chart["appVersion"] == project["version"]
    assert all(chart[key] for key in ("name", "description", "keywords", "maintainers"))
