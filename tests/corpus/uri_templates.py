"""Examples of RFC 6570 and `uritemplate-test`: expansion, and matching of expanded URIs."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from gateway.json_types import Json
from gateway.language.uris.matcher import compile_matcher
from gateway.language.uris.templates import UriTemplateError, expansion_of, parse_uri_template
from tests.corpus.corpora import Corpus, Verdict, reason_of
from tests.corpus.packages import directory
from tests.executors.recording import make_scope, messages_of

_ACCEPTED: Final = {"{keys:1}": "prefix of an object", "{+keys:1}": "prefix of an object"}
_REFUSED: Final = {"%20Thing` is not a variable": "encoded name", "%C3%9Fe` is not a variable": "encoded name"}
_UNMATCHABLE: Final = {
    "cannot be matched": "form",
    "can only be matched at the end": "form",
    "is used twice": "twice",
    "need literal text between": "neighbours",
}


async def verdicts(part: str) -> AsyncIterator[Verdict]:
    """Judge one file of examples."""
    for section in json.loads((_suite() / part).read_text(encoding="utf-8")).values():
        for template, expected in section["testcases"]:
            case = f"{part} {template}"
            try:
                expanded = _expanded(template, section["variables"])
            except UriTemplateError as error:
                reason = reason_of(str(error), _REFUSED) if expected else None
                yield Verdict(
                    check="expansion",
                    case=case,
                    reason=reason or "",
                    wrong=str(error) if expected and not reason else "",
                )
                continue
            fitting = expected if isinstance(expected, list) else [expected]
            if expanded in fitting:
                yield Verdict(check="expansion", case=case)
                yield _matched(case, template, section["variables"])
            else:
                reason = _ACCEPTED.get(template, "")
                yield Verdict(check="expansion", case=case, reason=reason, wrong="" if reason else f"gives {expanded}")


def _expanded(template: str, variables: Mapping[str, Json]) -> str:
    parts = parse_uri_template(template)
    return expansion_of(parts)(variables)


def _matched(case: str, template: str, variables: Mapping[str, Json]) -> Verdict:
    """Match an expanded URI. The variables must expand to the same URI again."""
    scope = make_scope({})
    matcher = compile_matcher(f"x:{template}", scope)
    if refusal := next(iter(messages_of(scope)), ""):
        reason = reason_of(refusal, _UNMATCHABLE)
        return Verdict(check="matching", case=case, reason=reason or "", wrong="" if reason else refusal)
    uri = f"x:{_expanded(template, variables)}"
    found = matcher.match(uri)
    if found is None:
        return Verdict(check="matching", case=case, wrong=f"does not match {uri}")
    again = f"x:{_expanded(template, found)}"
    return Verdict(check="matching", case=case, wrong="" if unquote(again) == unquote(uri) else f"{uri} became {again}")


def _suite() -> Path:
    return directory() / "node_modules/uri-templates/test/uritemplate-test"


def parts(*, is_whole: bool) -> list[str]:
    return sorted(path.name for path in _suite().glob("*.json"))


CORPUS: Final = Corpus(
    title="URI templates",
    about="""
The examples of RFC 6570 and others from [uritemplate-test](https://github.com/uri-templates/uritemplate-test).
Expansions must equal those of the suite. For matching, a template becomes the `uri` of a resource. The variables that
are matched in an expanded URI must expand to the same URI again.
""",
    checks={"expansion": "Templates to expand", "matching": "Expanded URIs to match"},
    reasons={
        "encoded name": "Names of variables are inputs: letters, digits and `_`, without percent-encoding.",
        "prefix of an object": "`{keys:1}` of an object is expanded as `{keys}`, because RFC 6570 does not define it.",
        "form": "The `uri` of a resource supports `{var}`, `{+var}`, `{/var}` and `{?a,b}`. "
        "Other forms can only be expanded.",
        "twice": "A variable that occurs twice cannot be matched.",
        "neighbours": "Two variables without text between them cannot be distinguished.",
    },
    parts=parts,
    verdicts=verdicts,
)
