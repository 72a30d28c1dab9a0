import os
from pathlib import Path

import pytest

from gateway.cli import main
from tests.cli.typed import CONFIG, Finished, Run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in a directory with a small `config.yaml`."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("MCP_GATEWAY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MCP_GATEWAY_STATE_DIR", "none")
    (tmp_path / "config.yaml").write_text(CONFIG)

    def run(*words: str) -> Finished:
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Finished(code, *capfd.readouterr())

    return run
