"""Attack one daemon per test file. After each test it must be unchanged, and must not have revealed its secrets.

A file describes its target in `PLAN`. Its tests take `target`, and each attack is next to a control that succeeds.
`target.client` talks to the daemon, and `target.tolerated` names log events of errors that a test causes on purpose.
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
