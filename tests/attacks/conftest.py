"""Attack one daemon per file of tests; after each test it must be as it was, and silent about what it knows.

A file says what it attacks in `PLAN`. Its tests take `target`, and each attack stands beside a control that succeeds;
`target.client` talks to the daemon, `target.tolerated` names events whose errors a test brings about on purpose.
"""

from collections.abc import Iterator

import pytest

from tests.attacks.target import Plan, Target, attacking


@pytest.fixture(scope="module")
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    plan: Plan = request.module.PLAN
    with attacking(plan, tmp_path_factory.mktemp("attacked")) as target:
        yield target


@pytest.fixture
def target(daemon: Target) -> Iterator[Target]:
    yield daemon
    daemon.assert_unharmed()
