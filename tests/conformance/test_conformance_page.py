"""`docs/conformance.md` contains the expected figures of the official suite."""

import re

from tests.conformance import test_client_leg, test_official_suite
from tests.conformance.suite import HERE

PAGE = HERE.parents[1] / "docs" / "conformance.md"


def test_page_has_the_figures_of_the_runs() -> None:
    rows = re.findall(r"(?m)^\| (server|client) \| `(.+)` \| (\d+) \| (\d+) \|$", PAGE.read_text())
    assert [(leg, run, int(scenarios), int(passed)) for leg, run, scenarios, passed in rows] == [
        *(
            ("server", run, scenarios, scenarios - len(test_official_suite.BASELINE[run]))
            for run, scenarios in test_official_suite.SCENARIOS.items()
        ),
        *(("client", run, scenarios, passed) for run, (scenarios, passed) in test_client_leg.SCENARIOS.items()),
    ]
