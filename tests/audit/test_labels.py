"""`audit.labels`: fields of a call's record that come from the caller."""

import json
from pathlib import Path
from typing import Final

from tests.protocol.peers import call, serve_folder
from tests.protocol.test_caller import AUTH, person

FILE: Final = """
audit:
  file: audit.log
  labels: {team: "{{ caller.claims.team }}", who: "{{ caller.subject | upper }}"}
tools:
  say: {description: Says., content: hello}
"""


async def test_labels_are_recorded_and_other_claims_are_not(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(AUTH + FILE)
    async with serve_folder(tmp_path) as served:
        await served.gateway.start()
        await call(served.modern(identity=person("ann", team="red", secret="a-private-claim")), "say")
        await call(served.modern(identity=person("bob")), "say")
        await call(served.modern(identity=person("cid", team="x" * 1000)), "say")
    text = (tmp_path / "audit.log").read_text()
    records = [record for record in map(json.loads, text.splitlines()) if record["event"] == "call"]
    assert [record["labels"] for record in records] == [
        {"team": "red", "who": "ANN"},
        # A missing claim does not prevent the record.
        {"team": None, "who": "BOB"},
        {"team": "x" * 256, "who": "CID"},
    ]
    assert "a-private-claim" not in text
