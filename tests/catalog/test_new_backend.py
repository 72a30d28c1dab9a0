"""A new backend only requires the steps in CONTRIBUTING.md. The test adds one to a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import orjson
import pytest

import gateway
from gateway.catalog.compile.backends import BACKENDS
from gateway.config.models.definitions import Resource, Tool, backends_of
from gateway.config.schema import document_schema

MODEL: Final = '''

class Reverse(Model):
    """Text, backwards."""

    connection: Annotated[str | None, EntryReference("connections")] = None
    """Name of an entry in `connections`."""
    text: Annotated[Template, Use.SECRET]
    """What to turn around."""
    timeout: PositiveDuration | None = None
    """The time limit."""

    @property
    def is_read_only(self) -> bool:
        return True
'''

FIELD: Final = '''    reverse: Annotated[Reverse | None, BACKEND] = None
    """Backend: text, backwards."""
'''

EXECUTOR: Final = '''"""Turns text around."""

from dataclasses import dataclass

from gateway.executors.invocation import Explanation
from gateway.executors.invocation import Invocation, Outcome, RawOutput
from gateway.language.templates.templating import TextTemplate


@dataclass(frozen=True, slots=True)
class ReverseExecutor:
    text: TextTemplate

    def explain(self, invocation: Invocation) -> Explanation:
        return Explanation(does="turns text around")

    async def execute(self, invocation: Invocation) -> Outcome:
        text = self.text.render(invocation.arguments)
        return RawOutput(data=text[::-1].encode(), variables={"length": len(text)})
'''

COMPILE: Final = """def _reverse(reverse: Any, given: _Definition) -> Executor:
    return ReverseExecutor(compile_text(reverse.text, given.scope.at("reverse", "text")))


class Backend(msgspec.Struct, frozen=True, kw_only=True):
"""

ROW: Final = """    "reverse": Backend(compile=_reverse, output=OutputTraits(names=("length",)), sees_caller=False),
"""

CONFIG: Final = """\
tools:
  turn:
    description: Turns a word around.
    input: {word: string}
    reverse: {text: "{{ word }}"}
    output: {template: "{{ result }} ({{ length }})"}
  secret:
    description: Shows a secret backwards twice.
    reverse: {text: "${env:SECRET_WORD}-yes"}
    output: {template: "${env:SECRET_WORD} {{ length }}"}
resources:
  page: {uri: "turn://{word}", reverse: {text: "{{ word }}"}}
  own: {uri: "own://{word}", reverse: {connection: api, text: "{{ word }}"}}
connections:
  api:
    base_url: https://api.example.com
    auth:
      authorization_code:
        issuer: https://login.example.com
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with another backend, and a configuration that uses it."""
    root = tmp_path_factory.mktemp("copy")
    package = root / "gateway"
    shutil.copytree(Path(gateway.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    models = package / "config" / "models"
    backends, definitions = models / "backends.py", models / "definitions.py"
    backends.write_text(backends.read_text() + MODEL)
    replaced(definitions, "import Argv, Http,", "import Argv, Http, Reverse,", times=1)
    replaced(
        definitions, '    """Backend: a child process."""\n', f'    """Backend: a child process."""\n{FIELD}', times=2
    )
    (package / "executors" / "reverse.py").write_text(EXECUTOR)
    table = package / "catalog" / "compile" / "backends.py"
    replaced(
        table, "from gateway.executors.shell.", "from gateway.executors.reverse import ReverseExecutor\n", before=True
    )
    replaced(table, "class Backend(msgspec.Struct, frozen=True, kw_only=True):\n", COMPILE, times=1)
    replaced(table, '    "python": Backend(', ROW, before=True)
    (root / "config.yaml").write_text(CONFIG)
    return root


def replaced(path: Path, anchor: str, new: str, *, times: int = 1, before: bool = False) -> None:
    text = path.read_text()
    assert text.count(anchor) == times
    path.write_text(text.replace(anchor, new + anchor if before else new))


def run(copy: Path, *words: str) -> str:
    environ = {**os.environ, "SECRET_WORD": "hush-hush-hush", "PYTHONPATH": str(copy)}
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *words], cwd=copy, env=environ, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.build
def test_backend_requires_only_model_executor_and_row(copy: Path) -> None:
    assert run(copy, "call", "config.yaml", "turn", "word=stressed").strip() == "desserts (8)"
    assert run(copy, "read", "config.yaml", "turn://live").strip() == "evil"
    assert "turns text around" in run(copy, "call", "config.yaml", "turn", "word=abc", "--explain")


@pytest.mark.build
def test_keys_and_properties_of_the_model_apply_as_for_other_backends(copy: Path) -> None:
    turn = orjson.loads(run(copy, "list", "config.yaml", "tools", "--json"))["tools"][0]
    assert turn["annotations"]["readOnlyHint"]
    shared, own = (
        orjson.loads(run(copy, "read", "config.yaml", f"{scheme}://live", "--raw")) for scheme in ("turn", "own")
    )
    assert (shared["cacheScope"], own["cacheScope"]) == ("public", "private")


@pytest.mark.build
def test_new_backend_appears_in_schema_and_reference(copy: Path) -> None:
    assert run(copy, "call", "config.yaml", "secret").strip() == "*** 18"
    schema = orjson.loads(run(copy, "schema"))
    assert schema["$defs"]["Reverse"]["properties"]["text"]["description"] == "What to turn around."
    assert {"reverse"} <= schema["$defs"]["Tool"]["properties"].keys() & schema["$defs"]["Resource"][
        "properties"
    ].keys()
    assert "## Reverse" in run(copy, "schema", "--markdown")


def test_reference_lists_output_names_of_each_backend() -> None:
    said = document_schema()["$defs"]["Output"]["properties"]["template"]["description"]
    names = {name for backend in BACKENDS.values() for name in backend.output.names}
    assert names == set(re.findall(r"`(\w+)`", said)) - {"result", "inputs"}


def test_every_backend_has_a_row() -> None:
    fields = {*backends_of(Tool), *backends_of(Resource)}
    assert fields - BACKENDS.keys() == {"files"}  # creates several resources
    assert BACKENDS.keys() - fields == {"upstream"}  # not a key of definitions
