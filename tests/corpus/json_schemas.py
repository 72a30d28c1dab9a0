"""JSON-Schema-Test-Suite, draft 2020-12, against our validation."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from gateway.config.diagnostics.problems import Problems
from gateway.language.schemas.json_schema import compile_schema
from tests.corpus.corpora import Corpus, Verdict, reason_of
from tests.corpus.packages import SCHEMA_SUITE, directory
from tests.executors.recording import OneFile

_ASSERTED: Final = frozenset({"date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "uri"})
"""The formats that the guide promises to check."""
_REFUSED: Final = {
    "other documents are not fetched": "remote",
    "names a dialect that is not supported": "dialect",
    "Integer exceeds 64-bit range": "integers",
    "is too expensive to match": "pattern of names",
}


async def verdicts(part: str) -> AsyncIterator[Verdict]:
    """Judge one file of the suite."""
    path = _suite() / part
    check = "optional" if part.startswith("optional/") else "required"
    for group in json.loads(path.read_text(encoding="utf-8")):
        # A tool's schema is an object, so `true` and `false` are wrapped.
        schema = group["schema"] if isinstance(group["schema"], dict) else {"allOf": [group["schema"]]}
        problems = Problems(OneFile(path))
        validator = compile_schema(schema, problems)
        refusal = next((problem.message for problem in problems), None)
        for test in group["tests"]:
            case = f"{part} {group['description']} / {test['description']}"
            if refusal is not None:
                reason = reason_of(refusal, _REFUSED)
                yield Verdict(check=check, case=case, reason=reason or "", wrong="" if reason else refusal)
            elif validator.is_valid(test["data"]) == test["valid"]:
                yield Verdict(check=check, case=case)
            else:
                reason = _difference(part, is_valid=test["valid"])
                said = "is accepted" if not test["valid"] else "is refused"
                yield Verdict(check=check, case=case, reason=reason, wrong="" if reason else said)


def _difference(part: str, *, is_valid: bool) -> str:
    """Return the reason of a different result, or ""."""
    name = part.rpartition("/")[2].removesuffix(".json")
    if name == "format" and is_valid:
        return "formats are checked"
    if part.startswith("optional/format/") and name not in _ASSERTED and not is_valid:
        return "formats are not checked"
    return ""


def _suite() -> Path:
    return directory() / SCHEMA_SUITE / "json/tests/draft2020-12"


def parts(*, is_whole: bool) -> list[str]:
    return sorted(path.relative_to(_suite()).as_posix() for path in _suite().rglob("*.json"))


CORPUS: Final = Corpus(
    title="JSON Schema",
    about="""
Every test of [JSON-Schema-Test-Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite) for draft 2020-12.
Values that are valid according to the suite must be accepted, and other values must be rejected.
""",
    checks={"required": "Tests of the standard", "optional": "Optional tests"},
    reasons={
        "remote": "The schema refers to another document, which is not fetched. Copy it to `$defs`.",
        "dialect": "`$schema` names a custom metaschema. 2020-12, 2019-09 and draft-07 are supported.",
        "integers": "The schema contains an integer of more than 64 bits.",
        "pattern of names": "A pattern in `patternProperties` is too expensive to check safely.",
        "formats are checked": "The suite treats `format` as an annotation. The gateway rejects values that do not "
        "match `date`, `time`, `date-time`, `email`, `uuid`, `ipv4`, `ipv6` or `uri`.",
        "formats are not checked": "Other formats, such as `hostname` and `duration`, are shown but not checked.",
    },
    parts=parts,
    verdicts=verdicts,
)
