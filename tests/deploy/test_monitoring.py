"""The alert rules and the dashboard use metrics and labels that a daemon exposes."""

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.telemetry.metric_definitions import METRIC_DEFINITIONS
from tests.cli.typed import started
from tests.deploy.files import DEPLOY, read
from tests.programs import need_named_by

RULES: Final = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD: Final = DEPLOY / "grafana" / "mcp-gateway.json"
TARGET_LABELS: Final = {"job", "instance"}
"""Labels that Prometheus adds to all metrics."""
_METRIC: Final = re.compile(r"\b((?:mcp_gateway|process)_\w+|up)\b(?:\{([^}]*)\})?")
_GROUPED: Final = re.compile(r"\b(?:by|on) \(([^)]*)\)")


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [rule for group in read(RULES)["groups"] for rule in group["rules"]]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        each for each in json.loads(DASHBOARD.read_text())["panels"] if each["type"] != "row"
    ]
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title and the query of each rule and panel."""
    yield from ((rule["alert"], rule["expr"]) for rule in rules())
    yield from ((panel["title"], target["expr"]) for panel in panels() for target in panel["targets"])


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The metrics of a running daemon, with their kinds."""
    folder = tmp_path_factory.mktemp("metrics")
    (folder / "config.yaml").write_text("tools: {hi: {description: Says hi., content: Hi.}}\n")
    with started("serve", "config.yaml", "--http", "127.0.0.1:0", cwd=folder) as server:
        assert server.stderr is not None
        url = next(event["url"] for line in server.stderr if (event := json.loads(line))["event"] == "listening")
        with urllib.request.urlopen(url.replace("/mcp", "/metrics"), timeout=60) as response:
            text = response.read().decode()
        server.terminate()
        server.wait(60)
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def test_metrics_of_rules_and_panels_are_exposed(exposed: dict[str, str]) -> None:
    series = {"up"}
    for name, kind in exposed.items():
        series |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    for title, query in queries():
        named = {name for name, _ in _METRIC.findall(query)}
        assert named, title
        assert named <= series, title


def test_labels_of_rules_and_panels_belong_to_the_metrics() -> None:
    labels = {metric.name: {*metric.labels, *TARGET_LABELS} for metric in METRIC_DEFINITIONS}
    for title, query in queries():
        used = set()
        for name, matchers in _METRIC.findall(query):
            own = labels.get(re.sub("_(bucket|sum|count)$", "", name), TARGET_LABELS)
            assert set(re.findall(r"(\w+)=", matchers)) <= own, title
            used |= own
        grouped = {label for group in _GROUPED.findall(query) for label in group.split(", ")}
        assert grouped <= {*used, "le"}, title


def test_texts_name_labels_that_the_query_keeps() -> None:
    for rule in rules():
        labels = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) - TARGET_LABELS
        assert all(label in str(METRIC_DEFINITIONS) for label in labels), rule["alert"]
        assert re.fullmatch(r"McpGateway[A-Za-z]+", rule["alert"])
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    for panel in panels():
        for target in panel["targets"]:
            grouped = {label for group in _GROUPED.findall(target["expr"]) for label in group.split(", ")}
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert legend <= {*grouped, "instance", "version"}, panel["title"]


def test_panels_have_unique_places_and_ids() -> None:
    found = json.loads(DASHBOARD.read_text())["panels"]
    assert len({each["id"] for each in found}) == len(found)
    covered: set[tuple[int, int]] = set()
    for each in found:
        at = each["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & covered, each["title"]
        assert max(x for x, _ in cells) < 24
        covered |= cells


@pytest.mark.build
def test_queries_are_valid_promql(tmp_path: Path) -> None:
    python = need_named_by("MCP_GATEWAY_TEST_KUBERNETES", what="a Python with tests/deploy/kubernetes.txt installed")
    texts = [query.replace("$__rate_interval", "5m") for _, query in queries()]
    script = "import json, sys, promql_parser\nfor text in json.load(sys.stdin): promql_parser.parse(text)"
    parsed = subprocess.run(
        [python, "-c", script], input=json.dumps(texts), capture_output=True, text=True, timeout=60, check=False
    )
    assert parsed.returncode == 0, parsed.stderr
