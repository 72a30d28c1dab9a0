import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from gateway.config.models.backends import Shell
from gateway.config.secrets.redactor import Redactor
from gateway.control_characters import with_newlines
from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.executors.invocation import Executor, Explanation, Failure, Invocation, Outcome, RawOutput
from gateway.executors.output.sanitizer import Sanitizer
from gateway.executors.scratch import FilePaths, new_folder, remove_folder
from gateway.executors.shared_services import Services
from gateway.executors.shell.argv import Argv, EnvironmentTemplate, compile_argv, compile_environment
from gateway.executors.shell.launcher import Launcher, compile_launcher
from gateway.executors.shell.progress_lines import ProgressLines
from gateway.executors.shell.script import ShellScript, compile_script
from gateway.json_types import Json, JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.templating import TextTemplate, compile_text
from gateway.processes.pipes import BoundedBuffer
from gateway.processes.process_tree import Command, Sink
from gateway.processes.processes import Processes
from gateway.telemetry.trace import TraceContext
from gateway.threads import DaemonThreadPool

MAX_OUTPUT: Final = 8 * 2**20
"""The default limit in bytes for standard output."""
MAX_STDERR: Final = 64 * 1024
_SHOWN: Final = 4000
"""The number of characters of each stream that an error message shows."""


class ShellExecutor(msgspec.Struct, frozen=True, kw_only=True):
    program: Argv | ShellScript
    launcher: Launcher
    environment: EnvironmentTemplate
    directory: str
    """The directory of the configuration file, to which `cwd` is relative."""
    cwd: TextTemplate
    stdin: TextTemplate
    success_codes: tuple[int, ...]
    progress: Literal["stdout", "stderr"] | None
    timeout: float | None
    """The time limit in seconds."""
    max_output: int
    processes: Processes
    sanitizer: Sanitizer
    threads: DaemonThreadPool
    has_files: bool = False
    """Whether arguments can contain files, which the command receives as paths."""

    async def execute(self, invocation: Invocation) -> Outcome:
        stdout, stderr = BoundedBuffer(self.max_output), BoundedBuffer(MAX_STDERR)
        try:
            exit_code = await self._run(invocation, stdout=stdout, stderr=stderr)
        except DeadlineExceededError as error:
            raise ExecutionError(f"{invocation.deadline.exceeded(error)}{self._stream_ends(stdout, stderr)}") from error
        said = self._shown(stderr)
        # bubblewrap and prlimit fail before the command runs, so standard output is empty.
        if exit_code and not stdout.received and (problem := self.launcher.problem(exit_code, said)) is not None:
            raise ExecutionError(problem)
        if exit_code not in self.success_codes:
            how = " ".join(filter(None, [_described(exit_code), self.launcher.limit_met(exit_code)]))
            return Failure(text=f"{how}{self._stream_ends(stdout, stderr)}")
        return RawOutput(data=stdout.data, omitted=stdout.omitted, variables={"exit_code": exit_code, "stderr": said})

    def explain(self, invocation: Invocation) -> Explanation:
        folder = self._new_folder()
        try:
            arguments = FilePaths(invocation.variables, folder=folder).arguments if folder else invocation.variables
            command = self._prepare(arguments, None, folder)
        finally:
            remove_folder(folder)
        script = self.program.text if isinstance(self.program, ShellScript) else None
        facts: dict[str, Json] = {
            "argv": [argument.replace(f"{folder}/", "") if folder else argument for argument in command.argv],
            "script": script,
            "confined_by": [*command.wrapper] or None,
            "directory": command.directory,
            "environment": sorted(command.environment),
            "stdin": command.stdin.decode(errors="replace") or None,
            "success_codes": sorted(self.success_codes) if set(self.success_codes) != {0} else None,
            "timeout_seconds": self.timeout,
        }
        return Explanation(does="runs a command" if script is None else "runs a script", facts=facts)

    async def _run(self, invocation: Invocation, *, stdout: BoundedBuffer, stderr: BoundedBuffer) -> int:
        sinks: dict[str, Sink] = {"stdout": stdout.feed, "stderr": stderr.feed}
        if self.progress is None or not invocation.call.wants_progress:
            return await self._run_command(invocation, sinks)
        async with ProgressLines(invocation.context, sanitizer=self.sanitizer) as lines:
            keep = sinks[self.progress]

            def feed(chunk: bytes) -> None:
                keep(chunk)
                lines.feed(chunk)

            sinks[self.progress] = feed
            return await self._run_command(invocation, sinks)

    async def _run_command(self, invocation: Invocation, sinks: Mapping[str, Sink]) -> int:
        with invocation.trace.step("shell", kind="internal", facts={}) as step:
            folder, arguments = self._new_folder(), invocation.variables
            try:
                if self.has_files and folder is not None:
                    paths = FilePaths(arguments, folder=folder)
                    await paths.write(invocation, threads=self.threads)
                    arguments = paths.arguments
                command = replace(self._prepare(arguments, step.context, folder), **sinks)
            except BaseException:
                # `Processes.run`, which normally removes the folder, was not called or has already removed it.
                remove_folder(folder)
                raise
            # Note only the name of the program, because traces must not contain paths.
            step.note("process.executable.name", command.argv[0].rpartition("/")[2])
            exit_code = await self.processes.run(
                command,
                deadline=invocation.deadline.within(self.timeout),
                permit=invocation.permit,
                afterwards=partial(remove_folder, folder),
            )
            step.note("process.exit.code", exit_code)
            if exit_code not in self.success_codes:
                step.fail("exit_code")
            return exit_code

    def _new_folder(self) -> Path | None:
        return new_folder() if self.has_files or isinstance(self.program, ShellScript) else None

    def _prepare(self, arguments: JsonObject, trace: TraceContext | None, folder: Path | None) -> Command:
        # Keep lone surrogates, which JSON allows (RFC 8259 §8.2).
        stdin = self.stdin.render(arguments).encode(errors="surrogatepass")
        cwd = self.cwd.render(arguments)
        directory = str(Path(self.directory, cwd)) if cwd else self.directory
        if "\0" in directory:
            raise ExecutionError("`cwd` contains a NUL character")
        environment = self.environment(arguments, trace)
        if isinstance(self.program, Argv):
            argv = self.program.build(arguments)
        else:
            assert folder is not None  # noqa: S101 - every script has one
            argv, environment = self.program.write(arguments, environment, folder)
        command = Command(argv=argv, environment=environment, directory=directory, stdin=stdin)
        return self.launcher.confined(command, folder=folder)

    def _stream_ends(self, stdout: BoundedBuffer, stderr: BoundedBuffer) -> str:
        ends = {"stderr": self._shown(stderr), "stdout": self._shown(stdout)}
        return "".join(f"\n\n{name}:\n{_end(text)}" for name, text in ends.items() if text.strip())

    def _shown(self, written: BoundedBuffer) -> str:
        end = written.end(MAX_STDERR)
        # If the beginning is missing, the text can start with a part of a secret.
        clean = self.sanitizer.text if len(end) == written.received else self.sanitizer.tail
        return clean(with_newlines(end.decode(errors="replace")))


def _end(text: str) -> str:
    text = text.rstrip()
    return text if len(text) <= _SHOWN else f"… {text[-_SHOWN:]}"


def _described(exit_code: int) -> str:
    if exit_code >= 0:
        return f"The command failed with exit code {exit_code}."
    try:
        return f"The command was ended by {signal.Signals(-exit_code).name}."
    except ValueError:  # a real-time signal
        return f"The command was ended by signal {-exit_code}."


def compile_shell(  # noqa: PLR0913 - the configuration and its context
    config: Shell,
    *,
    scope: Scope,
    services: Services,
    redactor: Redactor,
    max_output: int = MAX_OUTPUT,
    launcher: Launcher | None = None,
) -> Executor:
    """Compile a `shell:` backend and report problems at `scope`.

    `max_output` is the limit in bytes for standard output. `launcher` replaces the limits and sandbox of the backend.
    """
    has_files = scope.inputs.has_files
    scope = replace(scope, inputs=replace(scope.inputs, has_files=False))  # files are passed as paths
    stdin = compile_text(config.stdin or "", scope.at("stdin"))
    return ShellExecutor(
        program=compile_script(config, scope) if config.command is None else _compile_command(config, stdin, scope),
        launcher=launcher or compile_launcher(config, scope=scope),
        environment=compile_environment(config.env, inherit=config.inherit_env, scope=scope.at("env")),
        directory=str(scope.problems.directory),
        cwd=compile_text(config.cwd or "", scope.at("cwd")),
        stdin=stdin,
        success_codes=config.success_codes,
        progress=config.progress,
        timeout=None if config.timeout is None else config.timeout.total_seconds(),
        max_output=max_output,
        processes=services.processes,
        sanitizer=Sanitizer(redactor=redactor),
        threads=services.worker_threads,
        has_files=has_files,
    )


def _compile_command(config: Shell, stdin: TextTemplate, scope: Scope) -> Argv:
    argv = compile_argv(config.command or [], scope.at("command"))
    if argv.reader_of_stdin is not None and stdin.literal is None:
        scope.at("stdin").problems.error(
            f"an expression here would be read as code by {argv.reader_of_stdin}. Use `script:`,"
            " where inputs are variables"
        )
    return argv
