"""What a plan says of sections, where a whole file would need certificates."""

from typing import Any, Final

import pytest

from gateway.catalog.manifest import Manifest
from gateway.reload.planning import plan

OLD: Final = {"cert": "old.pem", "key": "old.key"}
NEW: Final = {"cert": "new.pem", "key": "new.key"}


def listening(tls: Any) -> Manifest:
    return Manifest(written={"listen": {"tls": tls}}, left_out={}, code={}, audiences={})


@pytest.mark.parametrize(("before", "after", "sections"), [(OLD, NEW, ()), (None, NEW, ("listen",))])
def test_another_certificate_needs_no_restart_and_tls_itself_does(before: Any, after: Any, sections: Any) -> None:
    assert plan(listening(before), listening(after)).restart_required == sections
