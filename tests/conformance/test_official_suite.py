"""`config/everything.yaml` passes the official conformance suite, except for the checks of the baseline."""

import asyncio
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.conformance.suite import HERE, the_suite
from tests.e2e.daemon import serving

pytestmark = pytest.mark.build

EVERYTHING: Final = HERE.parents[1] / "config" / "everything.yaml"
BASELINE: Final[dict[str, dict[str, list[str]]]] = yaml.safe_load((HERE / "baseline.yaml").read_text())
SCENARIOS: Final = {
    "--requirements 2025-11-25": 33,
    "--suite all --spec-version 2025-06-18": 27,
    "--requirements 2026-07-28": 50,
    "--suite all": 65,
}
"""The number of scenarios of each run, to detect missing scenarios."""
CLEAN: Final = {"SUCCESS", "INFO"}
SKIPPED_BY_THE_SUITE: Final = {"tasks-status-notifications"}
"""Scenarios that the suite does not implement yet."""


@pytest.mark.parametrize("run", SCENARIOS)
async def test_failed_checks_equal_the_baseline(run: str, tmp_path: Path) -> None:
    suite = the_suite()
    async with serving(EVERYTHING, "--http", "127.0.0.1:0") as daemon:
        checks = await asyncio.to_thread(suite.run, await daemon.url(), run.split(), output=tmp_path)
    wanting = {
        f"{check.scenario}:{check.name}": f"{check.status}: {check.reason}"
        for check in checks
        if check.status not in CLEAN and not (check.status == "SKIPPED" and check.scenario in SKIPPED_BY_THE_SUITE)
    }
    expected = {f"{scenario}:{name}" for scenario, names in BASELINE[run].items() for name in names}
    assert {name: wanting[name] for name in wanting.keys() - expected} == {}
    assert expected - wanting.keys() == set(), "these checks pass now, so remove them from the baseline"
    assert len({check.scenario for check in checks}) == SCENARIOS[run]


def test_baseline_only_names_existing_runs() -> None:
    assert BASELINE.keys() <= SCENARIOS.keys()
