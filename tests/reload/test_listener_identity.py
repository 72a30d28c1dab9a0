"""Tests for loading the certificate of `listen.tls`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.catalog.file_dependencies import FileDependencies
from gateway.config.loader import load
from gateway.errors import Severity
from gateway.reload.pipeline import with_identity
from tests.certificates import Authority

FILE = """\
listen:
  tls:
    cert: tls/server.pem
    key: tls/server.key
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tls").mkdir()
    (tmp_path / "config.yaml").write_text(FILE)
    Authority().issue(tmp_path / "tls/server.pem", tmp_path / "tls/server.key")
    return tmp_path


def said_of(folder: Path) -> list[tuple[str, str, Severity]]:
    """Return path, message without the directory, and severity of each problem."""
    loaded, _ = with_identity(load(folder / "config.yaml"), dependencies=FileDependencies())
    return [
        (
            f"{problem.location.line}:{problem.location.column} {problem.path}" if problem.location else problem.path,
            problem.message.replace(f"{folder}/", ""),
            problem.severity,
        )
        for problem in loaded.problems
    ]


def test_valid_certificate_is_loaded_and_watched(folder: Path) -> None:
    dependencies = FileDependencies()
    loaded, identity = with_identity(load(folder / "config.yaml"), dependencies=dependencies)
    assert loaded.problems == ()
    assert identity is not None
    assert dependencies.files == {folder / "tls/server.pem", folder / "tls/server.key"}


def test_no_certificate_is_loaded_without_tls(folder: Path) -> None:
    (folder / "config.yaml").write_text("listen: {sse: false}")
    assert with_identity(load(folder / "config.yaml"), dependencies=FileDependencies())[1] is None


def foreign_key(folder: Path) -> None:
    Authority().issue(folder / "tls/other.pem", folder / "tls/server.key")


def encrypted_key(folder: Path) -> None:
    Authority().issue(folder / "tls/server.pem", folder / "tls/server.key", password=b"secret")


CERT, KEY = "3:11 listen.tls.cert", "4:10 listen.tls.key"


@pytest.mark.parametrize(
    ("spoil", "place", "message"),
    [
        (lambda it: (it / "tls/server.pem").unlink(), CERT, "cannot read tls/server.pem: No such file or directory"),
        (lambda it: (it / "tls/server.key").unlink(), KEY, "cannot read tls/server.key: No such file or directory"),
        (
            lambda it: (it / "tls/server.pem").write_text("no"),
            CERT,
            "tls/server.pem contains no certificate in PEM format",
        ),
        (
            lambda it: (it / "tls/server.pem").write_bytes((it / "tls/server.key").read_bytes()),
            CERT,
            "tls/server.pem contains no certificate in PEM format",
        ),
        (
            lambda it: (it / "tls/server.key").write_text("no"),
            KEY,
            "tls/server.key contains no private key in PEM format",
        ),
        (foreign_key, KEY, "tls/server.key does not match `cert`"),
        (encrypted_key, KEY, "tls/server.key is encrypted. Use a key without a password"),
    ],
    ids=["no certificate", "no key", "not a certificate", "a key instead", "not a key", "another's key", "encrypted"],
)
def test_unusable_certificate_files_are_errors(
    folder: Path, spoil: Callable[[Path], object], place: str, message: str
) -> None:
    spoil(folder)
    assert said_of(folder) == [(place, message, Severity.ERROR)]
