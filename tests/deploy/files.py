"""Reads and validates the files of deploy/."""

from pathlib import Path
from typing import Any, Final

import yaml

from gateway.cli.commands.validate import check
from gateway.config.settings import read_settings
from gateway.errors import Problem

DEPLOY: Final = Path(__file__).parents[2] / "deploy"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def problems_of(config: Path, *, secrets: str, folder: Path) -> list[Problem]:
    """Return the gateway's output for a configuration whose secrets are in `folder`."""
    for name in ("team_key", "operator_key"):
        (folder / name).write_text(f"{name}-of-a-test-long-enough\n")
    here = folder / "config.yaml"
    here.write_text(config.read_text().replace(f"{secrets}/", f"{folder}/"))
    return list(check(read_settings({"config": here}))[1])
