"""The gateway passes the official suite's scenarios for clients, with the suite's server as an upstream."""

import asyncio
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.conformance.suite import HERE, the_suite

pytestmark = pytest.mark.build

BASELINE: Final[dict[str, list[str]]] = yaml.safe_load((HERE / "client-baseline.yaml").read_text())
SCENARIOS: Final = {
    "--requirements 2025-11-25": (25, 25),
    "--requirements 2026-07-28": (39, 39),
    "--suite backcompat": (2, 2),
    "--suite extensions": (6, 6),
}
"""The numbers of all and of passed scenarios per run, as in `docs/conformance.md`."""
BAD: Final = {"FAILURE", "WARNING"}


@pytest.mark.parametrize("run", SCENARIOS)
async def test_failed_scenarios_equal_the_baseline(run: str, tmp_path: Path) -> None:
    checks = await asyncio.to_thread(the_suite().run_client, run.split(), output=tmp_path)
    scenarios = {check.scenario for check in checks}
    failed = {check.scenario: f"{check.name}: {check.reason}" for check in checks if check.status in BAD}
    expected = {scenario for listed in BASELINE.values() for scenario in listed}
    assert {scenario: failed[scenario] for scenario in failed.keys() - expected} == {}
    assert (expected & scenarios) - failed.keys() == set(), "these checks pass now, so remove them from the baseline"
    assert (len(scenarios), len(scenarios - failed.keys())) == SCENARIOS[run]
