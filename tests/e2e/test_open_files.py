"""The limit of open files bounds the connections of the daemon."""

from pathlib import Path

import pytest

from tests.e2e.daemon import serving


@pytest.mark.parametrize(("limit", "warns"), [("1024", True), ("4096", False)])
async def test_low_limit_of_open_files_is_a_warning(tmp_path: Path, limit: str, *, warns: bool) -> None:
    (tmp_path / "config.yaml").write_text('listen: {http: "127.0.0.1:0"}\n')
    async with serving(tmp_path / "config.yaml", launcher=("prlimit", f"--nofile={limit}:{limit}")) as daemon:
        await daemon.url()
        assert any("the limit for open files allows only a few connections" in line for line in daemon.errors) is warns
