"""Adds a server to a client's configuration file, and keeps a backup."""

import difflib
from pathlib import Path
from typing import NamedTuple

from gateway.atomic_write import atomic_write
from gateway.client_configs.clients import Client, Definition
from gateway.client_configs.notation import NotEditableError, nested
from gateway.json_types import Json


class FileChange(NamedTuple):
    path: Path
    before: str | None
    """Text before the change, or None if the file does not exist."""
    after: str
    newline: str = "\n"
    """Line ending of the file. `before` and `after` always use a line feed."""

    @property
    def difference(self) -> list[str]:
        before = (self.before or "").splitlines()
        return list(difflib.unified_diff(before, self.after.splitlines(), str(self.path), str(self.path), lineterm=""))

    def write(self) -> Path | None:
        """Write the file atomically. Return the path of the backup, or None for a new file.

        Raises:
            OSError: the file cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        copy = None
        mode = 0o600  # new files can contain keys
        if self.before is not None:
            mode = self.path.stat().st_mode & 0o777
            copy = self.path.with_name(self.path.name + ".bak")
            with atomic_write(copy, mode=mode) as file:
                file.write(self._encoded(self.before))
        with atomic_write(self.path, mode=mode) as file:
            file.write(self._encoded(self.after))
        return copy

    def _encoded(self, text: str) -> bytes:
        return text.replace("\n", self.newline).encode()


def change_of(client: Client, name: str, entry: Definition, questions: list[Definition]) -> FileChange:
    """Return the change that adds or replaces a server in a client's file.

    Raises:
        NotEditableError: the file is invalid or cannot be edited safely.
        OSError: the file cannot be read.
    """
    # Resolve the path, because dotfiles are often symbolic links.
    path = Path(client.file).expanduser().resolve()
    newline = "\n"
    try:
        # `read_text` would convert `\r\n`.
        before: str | None = path.read_bytes().decode()
    except FileNotFoundError:
        before = None
    except UnicodeDecodeError as error:
        raise NotEditableError("it is not UTF-8") from error
    if before is not None:
        newline = "\r\n" if 0 < before.count("\n") == before.count("\r\n") else "\n"
        before = before.replace("\r\n", "\n")
    after = client.notation.put(before or "", (client.section, name), entry)
    if questions:
        after = client.notation.put(after, ("inputs",), _inputs(client, after, questions))
    # `put` edits the text to keep comments, so check that the result parses to the expected document.
    _check(client, before or "", after, nested((client.section, name), entry), has_questions=bool(questions))
    return FileChange(path, before, after, newline)


def _inputs(client: Client, text: str, questions: list[Definition]) -> list[Json]:
    """Return the file's `inputs` with `questions` appended. Leave out existing inputs with the same id."""
    found = client.notation.parse(text).get("inputs", [])
    if not isinstance(found, list):
        raise NotEditableError("`inputs` is not a list")
    ids = [question["id"] for question in questions]
    return [*(each for each in found if not (isinstance(each, dict) and each.get("id") in ids)), *questions]


def _check(client: Client, before: str, after: str, addition: dict[str, Json], *, has_questions: bool) -> None:
    expected, found = client.notation.parse(before), client.notation.parse(after)
    section = next(iter(addition))
    expected[section] = {**(expected.get(section) or {}), **addition[section]}
    if has_questions:
        expected["inputs"] = found.get("inputs")
    if expected != found:
        raise NotEditableError("the file uses notation that is not supported")
