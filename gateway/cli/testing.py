"""The command `test`: runs what stands under `tests:` of the tools, and reports it to people and to programs."""

import json
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from gateway.app import Grade, Verdict, run_tests
from gateway.cli.own_output import own_output
from gateway.cli.screen import Screen
from gateway.cli.settings import one_shot_settings
from gateway.cli.words import refusal, split_config

_MARKS: Final = {
    Grade.PASSED: ("✓", "green"),
    Grade.FAILED: ("✗", "red"),
    Grade.SKIPPED: ("–", "yellow"),
}
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Extensible Markup Language 1.0, production 2."""
_SIDES: Final = {"- ": "red", "+ ": "green"}


async def test(options: Namespace, out: Screen, hints: Screen) -> int:
    config, names = split_config(options.words, url=None)
    with own_output():
        verdicts = [verdict async for verdict in run_tests(one_shot_settings(options, config), names)]
    if options.junit is not None:
        _write_junit(verdicts, options.junit)
    if options.json:
        out.line(json.dumps([asdict(verdict) for verdict in verdicts], indent=2, ensure_ascii=False))
    else:
        _show(verdicts, out)
    hints.line(_summary(verdicts, hints))
    return 1 if any(verdict.grade is Grade.FAILED for verdict in verdicts) else 0


def _show(verdicts: Sequence[Verdict], out: Screen) -> None:
    for tool, group in groupby(verdicts, key=lambda verdict: verdict.tool):
        out.line(out.styled(tool, "bold"))
        for verdict in group:
            mark, style = _MARKS[verdict.grade]
            reason = f": {verdict.reason}" if verdict.reason else ""
            took = out.styled(f"({verdict.seconds * 1000:.0f} ms)", "dim")
            out.line(f"  {out.styled(mark, style)} {verdict.name}{out.clean(reason)} {took}")
            for line in verdict.difference:
                side = _SIDES.get(line[:2])
                text = out.clean(line)
                out.line(f"      {out.styled(text, side) if side else text}")


def _summary(verdicts: Sequence[Verdict], hints: Screen) -> str:
    if not verdicts:
        return "there are no tests; they stand under `tests:` of a tool"
    counts = Counter(verdict.grade for verdict in verdicts)
    text = ", ".join(f"{counts[grade]} {grade}" for grade in Grade if counts[grade])
    seconds = sum(verdict.seconds for verdict in verdicts)
    return hints.styled(f"{text} in {seconds:.1f} s", "red" if counts[Grade.FAILED] else "green")


def _write_junit(verdicts: Sequence[Verdict], path: Path) -> None:
    """The form that build servers read."""
    counts = Counter(verdict.grade for verdict in verdicts)
    suite = ET.Element(
        "testsuite",
        name="mcp-gateway",
        tests=str(len(verdicts)),
        failures=str(counts[Grade.FAILED]),
        skipped=str(counts[Grade.SKIPPED]),
    )
    for verdict in verdicts:
        case = ET.SubElement(
            suite, "testcase", classname=verdict.tool, name=verdict.name, time=f"{verdict.seconds:.3f}"
        )
        if verdict.grade is Grade.FAILED:
            failure = ET.SubElement(case, "failure", message=_in_xml(verdict.reason))
            failure.text = _in_xml("\n".join(verdict.difference))
        elif verdict.grade is Grade.SKIPPED:
            ET.SubElement(case, "skipped", message=_in_xml(verdict.reason))
    try:
        ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise refusal("--junit", f"cannot write {path}: {error.strerror}") from error


def _in_xml(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
