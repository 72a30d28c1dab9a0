"""README, image, changelog, demo and examples are accurate."""

import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from gateway import __version__
from gateway.cli.commands.validate import check
from gateway.config.settings import read_settings
from gateway.distribution import DISTRIBUTION, install_command
from tests.fork_launcher import fork_launcher
from tests.fork_server import FORKED

PROJECT: Final = Path(__file__).parents[1]
README: Final = (PROJECT / "README.md").read_text()
DOCKERFILE: Final = (PROJECT / "Dockerfile").read_text().replace("\\\n", " ")
EXAMPLES: Final = sorted((PROJECT / "config" / "examples").glob("*.yaml"))


def commands_of(markdown: str) -> list[str]:
    return [line for block in re.findall(r"```sh\n(.*?)```", markdown, re.DOTALL) for line in block.splitlines()]


def gateway(*words: str, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    path = f"{fork_launcher().folder}:{os.environ['PATH']}"  # some examples start mcp-gateway
    return subprocess.run(
        [FORKED, *words],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_readme_starts_with_serving_and_ends_with_the_tests() -> None:
    serve, test = commands_of(README)
    assert serve in README.splitlines()[:20]
    assert serve.endswith("mcp-gateway serve config/demo.yaml")
    assert test.endswith("pytest")
    assert README.endswith(f"{test}\n```\n")


def test_contributing_repeats_the_test_command_of_the_readme() -> None:
    assert commands_of((PROJECT / "CONTRIBUTING.md").read_text())[0] == commands_of(README)[1]


def test_readme_is_short_and_its_links_work() -> None:
    assert len(README.splitlines()) <= 60
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (PROJECT / target).exists(), target


def test_first_tool_of_the_readme_is_a_valid_file(tmp_path: Path) -> None:
    [tool] = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "config.yaml").write_text(tool.replace("/srv", str(tmp_path)))
    assert not check(read_settings({"config": tmp_path / "config.yaml"}))[1]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    pattern = re.search(r"grep -m 1 '(.*)' README.md", (PROJECT / ".ci" / "run").read_text())
    assert pattern is not None
    assert [line for line in README.splitlines() if re.search(pattern[1], line)][:1] == [commands_of(README)[1]]


def test_constraints_pin_every_dependency_of_both_commands() -> None:
    pins = dict(
        re.findall(r"^([a-z0-9-]+)==([^ \n]+)(?: ; .*)?$", (PROJECT / "constraints.txt").read_text(), re.MULTILINE)
    )
    with (PROJECT / "pyproject.toml").open("rb") as file:
        data = tomllib.load(file)
    groups = data["project"]["optional-dependencies"] | data["dependency-groups"]
    for requirement in [
        Requirement(text) for group in [data["project"]["dependencies"], *groups.values()] for text in group
    ]:
        assert requirement.specifier.contains(pins[requirement.name.lower()], prereleases=True), requirement
    assert all("==" in requirement for requirement in data["build-system"]["requires"])
    assert all(line.count("pip install") == line.count("-c constraints.txt") for line in commands_of(README)[:2])


def test_install_command_of_each_extra_names_its_packages() -> None:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    assert project["name"] == DISTRIBUTION
    for extra, packages in project["optional-dependencies"].items():
        expected = {re.split("[><=]", text)[0] for text in packages}
        assert set(shlex.split(install_command(extra))[2:]) == expected
        assert f"| `{extra}` |" in (PROJECT / "docs" / "install.md").read_text()


def test_demo_and_examples_load_without_warnings() -> None:
    assert EXAMPLES
    for path in [PROJECT / "config" / "demo.yaml", *EXAMPLES]:
        assert not check(read_settings({"config": path}))[1], path.name


def test_every_plugin_is_used_by_a_file_of_config() -> None:
    used = "".join(path.read_text() for path in (PROJECT / "config").rglob("*.yaml"))
    for plugin in (PROJECT / "plugins").glob("*.py"):
        assert f'"{plugin.stem}:' in used, plugin.name


def test_every_example_starts_with_a_description() -> None:
    for path in EXAMPLES:
        first, second, third, *_ = path.read_text().splitlines()
        assert first == "# yaml-language-server: $schema=../schema.json", path.name
        assert second == "#", path.name
        assert third.startswith("# "), path.name


@pytest.mark.parametrize(
    "command",
    [
        line.removeprefix("#").strip()
        for path in [PROJECT / "config" / "demo.yaml", *EXAMPLES]
        for line in path.read_text().splitlines()
        if re.match(r"#\s+mcp-gateway (call|read|prompt) ", line)
    ],
)
def test_commands_in_comments_of_examples_work(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)[1:]
    if "-o" in words:
        words[words.index("-o") + 1] = str(tmp_path / "output")
    if words[2] == "recent_commits" and not (PROJECT / ".git").exists():
        pytest.skip("needs the Git history of the project")
    finished = gateway(*words)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip() or (tmp_path / "output").stat().st_size
    assert "\x1b" not in finished.stdout + finished.stderr


def test_tests_in_examples_pass() -> None:
    tested = [path for path in EXAMPLES if "    tests:\n" in path.read_text()]
    assert tested
    for path in tested:
        finished = gateway("test", str(path))
        assert finished.returncode == 0, finished.stdout
        assert "passed" in finished.stderr


def test_changelog_and_licence_are_current() -> None:
    changelog = (PROJECT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in changelog or f"## [{__version__}]" in changelog
    assert "Copyright 2026 The mcp-gateway authors" in (PROJECT / "LICENSE").read_text()
    with (PROJECT / "pyproject.toml").open("rb") as file:
        assert tomllib.load(file)["project"]["license"] == "Apache-2.0"


def copied_sources() -> list[str]:
    copies = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return [source for copy in copies for source in copy.split()[:-1]]


def test_files_of_the_image_exist_and_are_not_ignored() -> None:
    admitted = {line[1:] for line in (PROJECT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied_sources()
    for source in copied_sources():
        assert (PROJECT / source).exists(), source
        assert source in admitted


def test_demo_works_in_the_layout_of_the_image(tmp_path: Path) -> None:
    for destination, sources in (
        (copy[-1], copy[:-1])
        for copy in (line.split()[1:] for line in re.findall(r"^COPY (?!--from).*$", DOCKERFILE, re.MULTILINE))
        if copy[-1].startswith("/etc/mcp-gateway")
    ):
        target = tmp_path / Path(destination).relative_to("/etc/mcp-gateway")
        for source in sources:
            subprocess.run(["cp", "-R", str(PROJECT / source), str(target)], check=True, timeout=10)
    script = next(line for line in DOCKERFILE.splitlines() if line.startswith("RUN sed"))
    subprocess.run(
        ["sh", "-e", "-c", script.removeprefix("RUN ").replace("/etc/mcp-gateway", str(tmp_path))],
        check=True,
        timeout=10,
    )
    assert not check(read_settings({"config": tmp_path / "config.yaml"}))[1]
    finished = gateway("call", "config.yaml", "count_words", cwd=tmp_path)
    assert "README.md" in finished.stdout
    assert gateway("read", "config.yaml", "project:///CHANGELOG.md", cwd=tmp_path).stdout.startswith("# Changelog")
