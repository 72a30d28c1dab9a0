"""`mcp-gateway completion` with real shells."""

import os
import subprocess
from pathlib import Path

import pytest

from gateway.cli import COMMANDS
from tests.cli.typed import Run
from tests.fork_launcher import fork_launcher
from tests.programs import need

COMPLETION_SCRIPTS = {
    "bash": """
source <(mcp-gateway completion bash)
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_mcp_gateway mcp-gateway; printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "zsh": """
compdef() {{ : }}; compadd() {{ shift; print -l -- "$@" }}; _files() {{ : }}
source <(mcp-gateway completion zsh)
words=({words}); CURRENT=${{#words}}
_mcp_gateway
""",
    "fish": """
mcp-gateway completion fish | source
complete -C '{line}'
""",
}
"""Scripts that complete a line like the Tab key. Bash and zsh pass the words in variables."""


@pytest.mark.build
@pytest.mark.parametrize("shell", COMPLETION_SCRIPTS)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mcp-gateway ", {*COMMANDS, "help", "--help", "--version"}),
        ("mcp-gateway val", {"validate"}),
        ("mcp-gateway call ", {"greet", "add", "figures", "fail", "steps", "picture", "flood", "hang"}),
        ("mcp-gateway call config.yaml gr", {"greet"}),
        ("mcp-gateway client-config c", {"chatgpt", "claude", "claude-desktop", "cline", "codex", "cursor"}),
        ("mcp-gateway read --out", {"--output"}),
    ],
)
def test_shell_completes(run: Run, tmp_path: Path, shell: str, line: str, expected: set[str]) -> None:
    del run  # creates a small file
    words = [*line.split(), *([""] if line.endswith(" ") else [])]
    script = COMPLETION_SCRIPTS[shell].format(line=line, words=" ".join(f"'{word}'" for word in words))
    finished = subprocess.run(
        [need(shell), *(["-f"] if shell == "zsh" else []), "-c", script],
        env={"PATH": f"{fork_launcher().folder}:{os.environ['PATH']}", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.stderr == ""
    assert {each.split("\t")[0] for each in finished.stdout.splitlines()} == expected


@pytest.mark.parametrize(
    "words",
    [
        ["call", "greet", ""],
        ["call", "config.yaml", "greet", ""],
        ["call", "nothing.yaml", ""],
        ["nothing", ""],
        ["serve", "--log-level", ""],
        ["client-config", "claude", ""],
        ["help", "call", ""],
    ],
)
def test_completion_falls_back_to_file_names(run: Run, words: list[str]) -> None:
    finished = run("completion", "bash", "--words", *words)
    assert (finished.code, finished.out, finished.hints) == (0, "", "")


def test_completion_works_with_an_invalid_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("tools: [")
    finished = run("completion", "bash", "--words", "call", "")
    assert (finished.code, finished.out, finished.hints) == (0, "", "")
