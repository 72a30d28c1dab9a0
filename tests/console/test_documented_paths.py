"""The paths and methods in docs/console-api.md exist."""

import re
from pathlib import Path
from typing import Final

from tests.console.watching import watched

TEXT: Final = (Path(__file__).parents[2] / "docs" / "console-api.md").read_text()
REQUESTS: Final = sorted({*re.findall(r"`(GET|POST|DELETE) (/-/api/[\w/{}-]*)", TEXT)})
METHODS: Final = {"GET", "POST", "DELETE"}
FILLED_IN: Final = {"kind": "tool", "seq": "1", "id": "none", "name": "none"}


async def test_documented_paths_exist(tmp_path: Path) -> None:
    assert len(REQUESTS) > 20
    async with watched(tmp_path, "tools: {hello: {description: Says hello., content: Hello.}}\n") as daemon:
        base = daemon.api.removesuffix("/-/api")
        for method, path in REQUESTS:
            if path.endswith("/events"):
                continue  # an endless stream, tested elsewhere
            url = base + path.format_map(FILLED_IN)
            async with daemon.http.request(method, url, headers=daemon.bearer) as response:
                answer = await response.text()
            assert response.status != 405, (method, path)
            assert "the MCP endpoint is" not in answer, (method, path)
            other = next(each for each in METHODS if (each, path) not in REQUESTS)
            async with daemon.http.request(other, url, headers=daemon.bearer) as response:
                assert response.status in {403, 405}, (other, path)
