"""The console's static files: vendored files are unchanged, and scripts create no markup from text."""

import gzip
import hashlib
import re
from pathlib import Path
from typing import Final

import pytest

import gateway

STATIC: Final = Path(gateway.__file__).parent / "console" / "static"
VENDOR: Final = STATIC / "vendor"
MAX_BYTES: Final = 120 * 1024
"""The maximum size of all files, compressed."""
AS_PUBLISHED: Final = {"hooks.js": (b'from"./preact.js"', b'from"preact"')}
"""Changes of a vendored file: without a build step, imports must name files."""
OWN: Final = sorted(
    path for path in STATIC.rglob("*") if path.suffix in {".js", ".css", ".html", ".svg"} and VENDOR not in path.parents
)
FORBIDDEN: Final = {
    "markup from text": r"(?:inner|outer|set)HTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMPars",
    "code from text": r"\beval\s*\(|new Function\b|setTimeout\(\s*[\"'`]",
    "an inline script or style": r"<script(?![^>]*\bsrc=)|<style\b|\bon[a-z]+=\"|\sstyle=\"|javascript:",
    "another site": r"(?:src|href|import|fetch|url)\s*[=(]?\s*[\"'`(]\s*(?:https?:)?//",
}


def digests() -> dict[str, str]:
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}


@pytest.mark.parametrize("name", ["preact.js", "hooks.js", "htm.js", "LICENSE-preact"])
def test_vendored_file_equals_the_published_one(name: str) -> None:
    content = (VENDOR / name).read_bytes()
    if name in AS_PUBLISHED:
        content = content.replace(*AS_PUBLISHED[name])
    assert hashlib.sha256(content).hexdigest() == digests()[name]


def test_every_vendored_script_has_its_digest() -> None:
    assert {path.name for path in VENDOR.iterdir()} == {*digests(), "SHA256SUMS", "README.md", "htm-preact.js"}


@pytest.mark.parametrize("path", OWN, ids=lambda path: str(path.relative_to(STATIC)))
@pytest.mark.parametrize("what", FORBIDDEN)
def test_page_files_contain_no_forbidden_code(path: Path, what: str) -> None:
    assert not re.findall(FORBIDDEN[what], path.read_text())


def test_modules_only_import_own_files() -> None:
    for path in OWN:
        for target in re.findall(r"(?:from|import\()\s*\"([^\"]+)\"", path.read_text()):
            assert target.startswith("."), f"{path}: {target}"
            assert (path.parent / target).is_file(), f"{path}: {target}"


def test_revisions_are_only_named_in_one_module() -> None:
    """A new revision is a constant in `wire/revisions.py`. Its additions are in the tables of `downgrade`."""
    literal = re.compile(r"""["'`]20\d\d-\d\d-\d\d["'`]""")
    files = [path for path in STATIC.parents[1].rglob("*") if path.suffix in {".py", ".js"}]
    named = {path.name for path in files if literal.search(path.read_text())}
    assert named - {"plugin.py"} == {"revisions.py"}  # an example in a docstring


def test_page_is_small() -> None:
    sent = {path: len(gzip.compress(path.read_bytes())) for path in STATIC.rglob("*") if path.is_file()}
    assert sum(sent.values()) <= MAX_BYTES, sent
