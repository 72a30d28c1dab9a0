"""Shell backends for tests, compiled from a mapping in a temporary directory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gateway.config.models.backends import Shell
from gateway.config.secrets.redactor import Redactor
from gateway.executors.invocation import Executor, Failure, Outcome, RawOutput
from gateway.executors.shared_services import Services
from gateway.executors.shell.executor import compile_shell
from gateway.json_types import Json, JsonObject
from tests.executors.recording import make_invocation, make_scope, messages_of

SCHEMAS: Final[dict[str, JsonObject]] = {
    "a": {"type": "string"},
    "n": {"type": "integer"},
    "items": {"type": "array"},
    "user-id": {"type": "string"},
}


class Tool:
    """A shell backend with a temporary directory."""

    def __init__(self, services: Services, folder: Path) -> None:
        self._services = services
        self.folder = folder

    def compiled(self, config: JsonObject, *, secrets: Sequence[str] = (), max_output: int = 8 * 2**20) -> Executor:
        scope = make_scope(SCHEMAS, optional=list(SCHEMAS), is_open=True, folder=self.folder)
        executor = compile_shell(
            Shell.model_validate(config),
            scope=scope.at("shell"),
            services=self._services,
            redactor=Redactor(secrets),
            max_output=max_output,
        )
        # As root, a writable sandbox is a warning. Other problems are mistakes in the test.
        assert [message for message in messages_of(scope) if "set-user-ID" not in message] == []
        return executor

    async def __call__(self, config: JsonObject, /, **arguments: Json) -> Outcome:
        return await self.compiled(config).execute(make_invocation(arguments))

    def problems(self, config: JsonObject) -> list[str]:
        """Return the problems of a backend at load."""
        scope = make_scope(SCHEMAS, optional=list(SCHEMAS), folder=self.folder)
        compile_shell(
            Shell.model_validate(config), scope=scope.at("shell"), services=self._services, redactor=Redactor()
        )
        return messages_of(scope)


def text_of(outcome: Outcome) -> str:
    assert isinstance(outcome, RawOutput), outcome
    return outcome.data.decode()


def failure_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Failure), outcome
    return outcome.text
