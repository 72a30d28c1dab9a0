"""Tests for plans of sections."""

from typing import Any, Final

import pytest

from gateway.catalog.manifest import Manifest
from gateway.reload.planning import plan

OLD: Final = {"cert": "old.pem", "key": "old.key"}
NEW: Final = {"cert": "new.pem", "key": "new.key"}


def listening(tls: Any) -> Manifest:
    return Manifest(written={"listen": {"tls": tls}}, left_out={}, code={}, audiences={})


@pytest.mark.parametrize(("before", "after", "sections"), [(OLD, NEW, ()), (None, NEW, ("listen",))])
def test_only_switching_tls_requires_a_restart(before: Any, after: Any, sections: Any) -> None:
    assert plan(listening(before), listening(after)).restart_required == sections


def test_null_value_differs_from_a_missing_key() -> None:
    def asking(**http: Any) -> Manifest:
        return Manifest(written={"tools.ask": {"http": http}}, left_out={}, code={}, audiences={})

    changes = plan(asking(url="http://x", cache=None), asking(url="http://x")).changes
    assert [(each.place, each.what) for each in changes] == [("tools.ask", "http.cache")]
