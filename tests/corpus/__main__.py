"""Judges whole corpora and writes the figures into `docs/compatibility.md`: `python -m tests.corpus [NAME …]`."""

import argparse
import asyncio
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from tests.corpus.corpora import Verdict, counted
from tests.corpus.page import write
from tests.corpus.registry import CORPORA


def judged(name: str, part: str) -> list[Verdict]:
    """Judge one part in a separate process. A crash is a wrong verdict."""

    async def judge() -> list[Verdict]:
        return [verdict async for verdict in CORPORA[name].verdicts(part)]

    try:
        return asyncio.run(judge())
    except Exception as error:  # noqa: BLE001 - Boundary: one part must not end the run
        check = next(iter(CORPORA[name].checks))
        return [Verdict(check=check, case=part, wrong=f"the check failed: {error!r}")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*CORPORA], metavar="NAME", help=f"one of {', '.join(CORPORA)}")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, help="judge only this number of parts of a corpus")
    parser.add_argument("--sample", action="store_true", help="judge the sample of CI, without changing the page")
    parser.add_argument(
        "--journal", type=Path, help="a file with verdicts; parts with only correct verdicts are not judged again"
    )
    given = parser.parse_args()
    known = _known(given.journal)
    with ProcessPoolExecutor(given.jobs) as pool:
        for name in given.names:
            parts = CORPORA[name].parts(is_whole=not given.sample)[: given.most]
            verdicts = [verdict for part in parts for verdict in known.get(part, ())]
            running = {pool.submit(judged, name, part): part for part in parts if part not in known}
            for number, done in enumerate(as_completed(running), 1):
                sys.stderr.write(f"\r{name} {number}/{len(running)} ")
                verdicts += done.result()
                wrong = [verdict for verdict in done.result() if verdict.wrong]
                sys.stdout.writelines(f"{each.check}: {each.case}: {each.wrong}\n" for each in wrong)
                sys.stdout.flush()
                if given.journal:
                    _note(given.journal, running[done], done.result())
            figures = counted(verdicts)
            for check, of in figures.items():
                sys.stdout.write(f"{name} {check}: {of.right} of {of.tried} right, {dict(of.reasons)}\n")
            if not given.sample:
                write(CORPORA[name], figures)


def _known(journal: Path | None) -> dict[str, list[Verdict]]:
    """Return the verdicts of an earlier run for parts without a wrong verdict."""
    lines = journal.read_text(encoding="utf-8").splitlines() if journal and journal.exists() else ()
    known = {part: [Verdict(**each) for each in verdicts] for part, verdicts in map(json.loads, lines)}
    return {part: verdicts for part, verdicts in known.items() if not any(each.wrong for each in verdicts)}


def _note(journal: Path, part: str, verdicts: list[Verdict]) -> None:
    with journal.open("a", encoding="utf-8") as file:
        file.write(json.dumps([part, [asdict(each) for each in verdicts]]) + "\n")


if __name__ == "__main__":
    main()
