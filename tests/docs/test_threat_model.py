"""The threat model names existing files and tests, and covers every attack test."""

import re
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[2]
PAGE: Final = (PROJECT / "docs" / "threat-model.md").read_text()
NAMED: Final = sorted(set(re.findall(r"`((?:gateway|tests|docs|deploy)(?:/[\w./-]+)?(?:::\w+)?)`", PAGE)))


def is_there(name: str) -> bool:
    path, _, function = name.partition("::")
    if not function:
        return (PROJECT / path).exists()
    text = (PROJECT / path).read_text()
    return re.search(rf"^ *(?:async )?def {function}\(", text, re.MULTILINE) is not None


def test_mentioned_tests_and_files_exist() -> None:
    assert len(NAMED) > 200
    assert [name for name in NAMED if not is_there(name)] == []


def test_each_threat_has_a_mitigation_and_a_test() -> None:
    rows = re.findall(r"^\| (?!threat|---)(.+?) \| (.*?gateway/.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    tables = re.findall(r"^\| threat \|.*?(?=\n\n|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert len(rows) == sum(len(table.splitlines()) - 2 for table in tables)
    assert all("tests/" in proof for _, _, proof in rows)


def test_each_attack_file_is_cited() -> None:
    attacks = {f"tests/attacks/{path.name}" for path in (PROJECT / "tests" / "attacks").glob("test_*.py")}
    cited = {name.partition("::")[0] for name in NAMED}
    assert attacks - cited <= {"tests/attacks/test_frame.py"}  # tests the framework


def test_security_page_links_to_the_threat_model() -> None:
    page = (PROJECT / "SECURITY.md").read_text()
    promises = re.findall(r"^[0-9]+\. ", page, re.MULTILINE)
    assert len(promises) == 10
    assert "docs/threat-model.md" in page
