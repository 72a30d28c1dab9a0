import json
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from gateway.cli.commands.test.running import Grade, Verdict, run_tests
from gateway.cli.console import Console, protect_stdout
from gateway.cli.options import add_env_file, add_json, add_log_level, one_shot_settings
from gateway.cli.parser import CONFIG_AS_FIRST_WORD, Parser
from gateway.cli.results import writing
from gateway.cli.user_input import split_config

_MARKS: Final = {Grade.PASSED: ("✓", "green"), Grade.FAILED: ("✗", "red"), Grade.SKIPPED: ("–", "yellow")}
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Matches characters that XML 1.0 does not allow (§2.2, production 2)."""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        words="[CONFIG] [TOOL …]",
        summary="Run the tests that the tools define under `tests:`, without a server.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} config.yaml disk_usage 'get_*'
  {name} config.yaml --junit report.xml

Commands and functions really run. An HTTP backend receives the response under `http` of the test,
or without `http` sends its request to the real server.

{CONFIG_AS_FIRST_WORD}

exit codes:
  0    all tests passed, or were skipped because a requirement of the tool is missing
  1    a test failed
  2    the file cannot be served, or there is no such tool""",
    )
    arguments.add_argument("words", nargs="*", default=[], metavar="TOOL", help="names or globs (default: all)")
    add_json(arguments, "the results as a JSON list")
    arguments.add_argument("--junit", type=Path, metavar="FILE", help="also write the results as JUnit XML")
    add_env_file(arguments.add_argument)
    add_log_level(arguments.add_argument)
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    config, names = split_config(options.words, url=None)
    with protect_stdout():
        verdicts = [verdict async for verdict in run_tests(one_shot_settings(options, config), names)]
    if options.json:
        out.foreign(json.dumps([msgspec.to_builtins(verdict) for verdict in verdicts], indent=2, ensure_ascii=False))
    else:
        _show(verdicts, out)
    hints.line(_summary(verdicts, hints))
    if options.junit is not None:
        _write_junit(verdicts, options.junit)
    return 1 if any(verdict.grade is Grade.FAILED for verdict in verdicts) else 0


def _show(verdicts: Sequence[Verdict], out: Console) -> None:
    for tool, group in groupby(verdicts, key=lambda verdict: verdict.tool):
        out.line(out.styled(tool, "bold"))
        for verdict in group:
            mark, style = _MARKS[verdict.grade]
            reason = f": {verdict.reason}" if verdict.reason else ""
            took = out.styled(f"({verdict.seconds * 1000:.0f} ms)", "dim")
            out.line(f"  {out.styled(mark, style)} {verdict.name}{out.clean(reason)} {took}")
            for line in verdict.difference:
                out.line(f"      {out.changed(line)}")


def _summary(verdicts: Sequence[Verdict], hints: Console) -> str:
    if not verdicts:
        return "no tests found. Define them under `tests:` of a tool"
    counts = Counter(verdict.grade for verdict in verdicts)
    text = ", ".join(f"{counts[grade]} {grade}" for grade in Grade if counts[grade])
    seconds = sum(verdict.seconds for verdict in verdicts)
    return hints.styled(f"{text} in {seconds:.1f} s", "red" if counts[Grade.FAILED] else "green")


def _write_junit(verdicts: Sequence[Verdict], path: Path) -> None:
    counts = Counter(verdict.grade for verdict in verdicts)
    # The JUnit format has no standard. Write the elements and attributes that Apache Ant writes.
    suite = ET.Element(
        "testsuite",
        name="mcp-gateway",
        tests=str(len(verdicts)),
        failures=str(counts[Grade.FAILED]),
        skipped=str(counts[Grade.SKIPPED]),
    )
    for verdict in verdicts:
        case = ET.SubElement(
            suite, "testcase", classname=verdict.tool, name=_in_xml(verdict.name), time=f"{verdict.seconds:.3f}"
        )
        if verdict.grade is Grade.FAILED:
            failure = ET.SubElement(case, "failure", message=_in_xml(verdict.reason))
            failure.text = _in_xml("\n".join(verdict.difference))
        elif verdict.grade is Grade.SKIPPED:
            ET.SubElement(case, "skipped", message=_in_xml(verdict.reason))
    with writing(path):
        ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _in_xml(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
