"""Compile steps that are taken over from an earlier compilation, where nothing has changed that they read.

A step is the work for one definition: to compile it, to lint it. It reads objects that loads share (its validated
model, its connection), values, facts about the machine, and what is common to all steps. If all these are the same, so
is its result, and what it reported and found to be watched is said again, with the lines of now.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from gateway.catalog.file_dependencies import FileDependencies
from gateway.config.diagnostics.problems import Problems, Report
from gateway.config.machine_facts import FactLog, Facts
from gateway.json_types import Json

T = TypeVar("T")

StepName = tuple[str, ...]
"""What is done, and for which definition."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step that was taken: what it read, and what came of it."""

    objects: tuple[object, ...]
    values: tuple[object, ...]
    facts: Facts | None
    reports: tuple[Report, ...]
    dependencies: FileDependencies | None
    result: Json


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All steps of one compilation."""

    common: tuple[object, ...] = ()
    """The values that every step may have read."""
    steps: Mapping[StepName, Step] = msgspec.field(default_factory=dict)


NO_STEPS: Final = StepRecord()


class Steps:
    """Takes the steps of one compilation."""

    def __init__(
        self,
        *,
        common: tuple[object, ...],
        problems: Problems,
        dependencies: FileDependencies,
        earlier: StepRecord,
    ) -> None:
        self._common: Final = common
        self._problems: Final = problems
        self._dependencies: Final = dependencies
        # Where what all steps may have read has changed, no earlier one holds.
        self._earlier: Final = earlier.steps if earlier.common == common else {}
        self._facts: Final = FactLog()
        self._taken: Final[dict[StepName, Step]] = {}

    def take(
        self,
        name: StepName,
        work: Callable[[FileDependencies], T],
        *,
        objects: tuple[object, ...],
        values: tuple[object, ...] = (),
        again: Callable[[], None] = lambda: None,
    ) -> T:
        """Do the work, unless it was done before with the same objects and equal values on the same machine.

        The work reports to the problems of the compilation, and adds to the dependencies that it is given. `again` is
        called where its earlier result is taken.
        """
        step = self._earlier.get(name)
        if step is None or not self._is_current(step, objects, values):
            step = self._done(work, objects, values)
        else:
            self._problems.repeat(step.reports)
            again()
        if step.dependencies is not None:
            self._dependencies.add(step.dependencies)
        self._taken[name] = step
        result: T = step.result
        return result

    def record(self) -> StepRecord:
        return StepRecord(common=self._common, steps=self._taken)

    def forget(self) -> list[Step]:
        """Forget all steps of this compilation, and return them: they can be freed one by one."""
        forgotten = list(self._taken.values())
        self._taken.clear()
        return forgotten

    def _is_current(self, step: Step, objects: tuple[object, ...], values: tuple[object, ...]) -> bool:
        # By identity: a load takes the models of unchanged entries over from the load before.
        are_same = all(now is before for now, before in zip(objects, step.objects, strict=True))
        return are_same and step.values == values and (step.facts is None or self._facts.still_hold(step.facts))

    def _done(
        self, work: Callable[[FileDependencies], T], objects: tuple[object, ...], values: tuple[object, ...]
    ) -> Step:
        found = self._dependencies.like()
        with self._problems.noting() as reports, self._facts.noting() as facts:
            result = work(found)
        return Step(
            objects=objects,
            values=values,
            facts=facts or None,
            reports=tuple(reports),
            dependencies=None if found.is_empty else found,
            result=result,
        )
