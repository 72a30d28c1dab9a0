"""Each value of a caller becomes exactly one argument, also as seen by a child process."""

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.models.backends import ArgvItem, Conditional
from gateway.config.models.interpolated_text import InterpolatedText, Interpolation
from gateway.errors import ExecutionError
from gateway.executors.shell.argv import MAX_ARGUMENT_LENGTH, compile_argv
from gateway.executors.shell.interpreter_table import COMMAND_WRAPPERS, INTERPRETERS
from gateway.json_types import Json, JsonObject
from tests.examples import examples
from tests.executors.recording import make_scope, messages_of

SCHEMAS: dict[str, JsonObject] = {
    "a": {"type": "string"},
    "b": {"type": "string"},
    "flag": {"type": "boolean"},
    "items": {"type": "array", "items": {"type": "string"}},
    "n": {"type": "integer"},
    "shell": {"enum": ["sh", "bash"]},
    "tool": {"enum": ["ls", "du"]},
    "perhaps": {"enum": ["ls", "du"]},
}


def build(items: Sequence[ArgvItem], /, **variables: Json) -> list[str]:
    scope = make_scope(SCHEMAS, optional=["perhaps"])
    argv = compile_argv(items, scope.at("command"))
    assert messages_of(scope) == []
    return argv.build(variables)


def problems_in(*items: ArgvItem) -> list[str]:
    scope = make_scope(SCHEMAS, optional=["perhaps"])
    compile_argv(items, scope.at("command"))
    return messages_of(scope)


def when(condition: str, *then: str) -> Conditional:
    return Conditional.model_validate({"if": condition, "then": list(then)})


@pytest.mark.parametrize(
    ("items", "variables", "built"),
    [
        (["ls", "{{ a }}"], {"a": "x; rm -rf / #'\"$(id)`id`\n*"}, ["ls", "x; rm -rf / #'\"$(id)`id`\n*"]),
        (["ls", "{{ a }}"], {"a": ""}, ["ls", ""]),
        (["ls", "{{ a }}", "x"], {}, ["ls", "x"]),
        (["ls", "{{ a }}", "x"], {"a": None}, ["ls", "x"]),
        (["ls", "--a={{ a }}"], {}, ["ls"]),
        (["ls", "--a={{ a }}"], {"a": "-v"}, ["ls", "--a=-v"]),
        (["ls", "{{ n }}{{ flag }}"], {"n": 3, "flag": True}, ["ls", "3true"]),
        (["ls", ("-n", "{{ n }}"), ("-a", "{{ a }}")], {"n": 3}, ["ls", "-n", "3"]),
        (["ls", when("flag", "-v", "{{ a }}")], {"flag": True}, ["ls", "-v"]),
        (["ls", when("flag", "-v")], {"flag": False}, ["ls"]),
        (["ls", when("n > 2", "-v")], {"n": 3}, ["ls", "-v"]),
        (["ls", "{{ items }}", "z"], {"items": ["x y", ""]}, ["ls", "x y", "", "z"]),
        (["ls", "{{ items }}", "z"], {"items": []}, ["ls", "z"]),
        (["ls", ("-t", "{{ items }}"), "z"], {"items": []}, ["ls", "z"]),
        (["ls", "x{{ items }}"], {"items": ["a", 1]}, ["ls", 'x["a",1]']),
        (["ls", "{{ items }}"], {"items": [True, None, 1.5, {"k": [1]}]}, ["ls", "true", "1.5", '{"k":[1]}']),
        (["ls", "--", "{{ items }}"], {"items": ["-rf"]}, ["ls", "--", "-rf"]),
        (["ls", when("flag", "--"), "{{ a }}"], {"flag": True, "a": "-"}, ["ls", "--", "-"]),
        (["{{ tool }}", "x"], {"tool": "du"}, ["du", "x"]),
        (["sudo", "{{ tool }}", "{{ a }}"], {"tool": "du", "a": "x"}, ["sudo", "du", "x"]),
    ],
)
def test_arguments_are_built_from_templates(items: Sequence[ArgvItem], variables: JsonObject, built: list[str]) -> None:
    assert build(items, **variables) == built


@pytest.mark.parametrize(
    ("items", "variables", "named"),
    [
        (["ls", "{{ a }}"], {"a": "-rf"}, "{{ a }}"),
        (["ls", "{{ a }}"], {"a": "-"}, "{{ a }}"),
        (["ls", "{{ n }}"], {"n": -1}, "{{ n }}"),
        (["ls", "{{ a }}{{ b }}"], {"a": "", "b": "-x"}, "{{ a }}{{ b }}"),
        (["ls", "{{ items }}"], {"items": ["x", "-rf"]}, "{{ items }}"),
        (["ls", ("-n", "{{ a }}")], {"a": "-x"}, "{{ a }}"),
        (["ls", when("flag", "--"), "{{ a }}"], {"a": "-x"}, "{{ a }}"),
        (["ls", "{{ a }}", "--"], {"a": "-x"}, "{{ a }}"),
        (["ls", " -- ", "-{{ b }}", "{{ a }}"], {"a": "-x", "b": "-"}, "{{ a }}"),
        (["ls", "{{ a }}", "{{ b }}"], {"a": "--", "b": "-x"}, "{{ a }}"),
    ],
)
def test_value_cannot_become_an_option(items: Sequence[ArgvItem], variables: JsonObject, named: str) -> None:
    with pytest.raises(ExecutionError) as raised:
        build(items, **variables)
    assert str(raised.value) == f"the argument {named} must not start with `-`: ls would read it as an option"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a\0b", "the argument {{ a }} contains a NUL character. Only `stdin` can contain one"),
        ("x" * 200 * 1024, "the argument {{ a }} has 204800 bytes, but the limit is 128 KiB. Use `stdin`"),
        ("ü" * 65536, "the argument {{ a }} has 131072 bytes, but the limit is 128 KiB. Use `stdin`"),
    ],
)
def test_impossible_argument_is_rejected_with_its_name(value: str, message: str) -> None:
    with pytest.raises(ExecutionError) as raised:
        build(["ls", "{{ a }}"], a=value)
    assert message in str(raised.value)


def test_longest_argument_is_the_systems() -> None:
    longest = "x" * MAX_ARGUMENT_LENGTH
    subprocess.run(["true", *build(["true", "{{ a }}"], a=longest)[1:]], check=True)
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["true", f"{longest}x"], check=True)


def test_messages_do_not_contain_interpolated_values() -> None:
    secret = InterpolatedText(("{{ a }}", Interpolation("hunter22", secret=True)))
    with pytest.raises(ExecutionError, match=r"the argument \{\{ a \}\}… contains"):
        build(["ls", secret], a="\0")


@pytest.mark.parametrize(
    "items",
    [
        ["{{ a }}"],
        ["./{{ a }}"],
        ["{{ perhaps }}"],
        [""],
        ["sudo", "{{ a }}"],
        ["env", "A=1", "{{ a }}", "x"],
        ["timeout", "{{ n }}", "{{ a }}"],
        ["nice", "-n", "{{ n }}", "{{ perhaps }}", "sh"],
        ["find", ".", "-exec", "{{ a }}", "{}", ";"],
    ],
)
def test_caller_cannot_choose_the_program(items: list[ArgvItem]) -> None:
    found = problems_in(*items)
    assert len(found) == 1
    assert "the program must be a literal, or an input that is always given and has an `enum`" in found[0]


def test_command_must_start_with_a_program() -> None:
    message = "command.0: the first item is the program, so it cannot be a list or a conditional argument"
    assert message in problems_in(when("flag", "sudo"), "ls")
    assert message in problems_in(("sudo", "{{ n }}"), "ls")


CODE: dict[str, list[ArgvItem]] = {
    "sh": ["sh", "-c", "grep {{ a }} log"],
    "a path": ["/usr/bin/bash", "-c", "{{ a }}"],
    "flags together": ["bash", "-lc", "{{ a }}"],
    "flags apart": ["bash", "-e", "-c", "{{ a }}"],
    "flags after": ["sh", "-c", "-e", "{{ a }}"],
    "an option's value before": ["bash", "-eo", "pipefail", "-c", "{{ a }}"],
    "a long option's value before": ["bash", "--rcfile", "x", "-c", "{{ a }}"],
    "a chosen shell": ["{{ shell }}", "-c", "{{ a }}"],
    "flags from the caller": ["sh", "-{{ a }}", "x"],
    "a group": ["sh", ("-c", "{{ a }}")],
    "a conditional": ["sh", when("flag", "-c", "{{ a }}")],
    "an absent operand before": ["bash", "{{ b }}", "-c", "{{ a }}"],
    "dash": ["dash", "-c", "{{ a }}"],
    "zsh": ["zsh", "-fc", "{{ a }}"],
    "ksh93": ["ksh93", "-c", "{{ a }}"],
    "fish": ["fish", "--command={{ a }}"],
    "python": ["python", "-c", "print('{{ a }}')"],
    "python version": ["python3.12", "-c", "{{ a }}"],
    "python attached": ["python3", "-Ic{{ a }}"],
    "perl": ["perl", "-ne", "print if /{{ a }}/"],
    "perl -E": ["perl", "-E", "{{ a }}"],
    "perl module": ["perl", "-M{{ a }}", "x.pl"],
    "perl in place": ["perl", "-i.bak", "-pe", "{{ a }}"],
    "ruby": ["ruby", "-e", "{{ a }}"],
    "node": ["node", "-e", "{{ a }}"],
    "node --eval": ["node", "--eval={{ a }}"],
    "node -p": ["node", "-p", "{{ a }}"],
    "php": ["php", "-r", "{{ a }}"],
    "lua": ["lua5.4", "-e", "{{ a }}"],
    "awk": ["awk", "-F", ",", "/{{ a }}/ {print $1}", "data"],
    "gawk": ["gawk", "-v", "x=1", "{{ a }}"],
    "sed": ["sed", "-n", "s/{{ a }}/x/p"],
    "sed -e": ["sed", "-i.before", "-e", "s/{{ a }}//", "file"],
    "sed in place": ["sed", "-i.bef", "s/{{ a }}//", "file"],
    "ssh": ["ssh", "host", "ls {{ a }}"],
    "ssh with options": ["ssh", "-p", "22", "-v", "{{ b }}", "ls", "{{ a }}"],
    "ssh -o": ["ssh", "-o", "ProxyCommand={{ a }}", "host"],
    "ssh with hosts": ["ssh", "{{ items }}", "uptime"],
    "env -S": ["env", "-S", "{{ a }}"],
    "env": ["env", "A={{ b }}", "sh", "-c", "{{ a }}"],
    "sudo": ["sudo", "-u", "{{ b }}", "bash", "-c", "{{ a }}"],
    "nice": ["nice", "-n", "{{ n }}", "sh", "-c", "{{ a }}"],
    "timeout": ["timeout", "-k", "5", "{{ n }}", "awk", "{{ a }}"],
    "nohup": ["nohup", "setsid", "stdbuf", "-oL", "doas", "sed", "{{ a }}"],
    "chroot": ["chroot", "/srv", "ionice", "-c", "3", "time", "perl", "-e", "{{ a }}"],
    "xargs": ["xargs", "-0", "-n", "1", "sh", "-c", "{{ a }}"],
    "busybox": ["busybox", "awk", "{{ a }}"],
    "find": ["find", "{{ b }}", "-exec", "sh", "-c", "{{ a }}", ";"],
    "docker": ["docker", "exec", "app", "sh", "-c", "{{ a }}"],
    "kubectl": ["kubectl", "exec", "pod", "--", "node", "-e", "{{ a }}"],
    "su": ["su", "-", "user", "-c", "{{ a }}"],
    "watch": ["watch", "-n", "1", "ls", "{{ a }}"],
    "eval": ["eval", "{{ a }}"],
    "tar": ["tar", "-xf", "{{ b }}", "--to-command={{ a }}"],
    "psql": ["psql", "db", "-c", "select {{ a }}"],
    "sqlite3": ["sqlite3", "{{ b }}", "select {{ a }}"],
    "flock": ["flock", "/tmp/lock", "-c", "{{ a }}"],
    "make": ["make", "-C", "src", "VERSION={{ a }}"],
    "make's target": ["make", "{{ a }}"],
    "make --eval": ["gmake", "--eval={{ a }}", "all"],
    "vim": ["vim", "-es", "-c", "{{ a }}", "file"],
    "dc": ["dc", "-e", "{{ a }} p"],
    "erl": ["erl", "-noshell", "-eval", "{{ a }}"],
    "elixir": ["elixir", "-e", "{{ a }}"],
    "gnuplot": ["gnuplot", "-e", "f='{{ a }}'", "plot.gp"],
    "octave": ["octave", "--eval", "{{ a }}"],
    "sshpass": ["sshpass", "-p", "{{ b }}", "ssh", "host", "ls {{ a }}"],
    "autossh": ["autossh", "-M", "0", "host", "ls {{ a }}"],
    "ansible": ["ansible", "all", "-m", "shell", "-a", "ls {{ a }}"],
    "tmux": ["tmux", "new-session", "-d", "-s", "name", "ls {{ a }}"],
    "vagrant": ["vagrant", "ssh", "-c", "ls {{ a }}"],
    "git bisect": ["git", "bisect", "run", "sh", "-c", "ls {{ a }}"],
    "git bisect awk": ["git", "-C", "{{ b }}", "bisect", "run", "awk", "{{ a }}"],
    "git submodule": ["git", "submodule", "--quiet", "foreach", "--recursive", "git log {{ a }}"],
    "git rebase": ["git", "rebase", "--exec", "make {{ a }}", "main"],
    "git filter-branch": ["git", "filter-branch", "--tree-filter", "rm {{ a }}", "HEAD"],
    "git -c": ["git", "-c", "{{ a }}", "log"],
    "deno": ["deno", "eval", "--ext=ts", "console.log('{{ a }}')"],
    "at": ["at", "-f", "{{ a }}", "now"],
    "docker's awk": ["docker", "exec", "-i", "-u", "{{ b }}", "--env", "A=1", "app", "awk", "/{{ a }}/"],
    "compose's sed": ["docker", "compose", "exec", "app", "sed", "s/{{ a }}//"],
    "podman's language": ["sudo", "podman", "exec", "app", "julia", "-e", "{{ a }}"],
    "ip netns": ["ip", "netns", "exec", "{{ b }}", "ssh", "host", "{{ a }}"],
    "gosu": ["gosu", "user", "awk", "{{ a }}"],
    "tini": ["tini", "-g", "--", "sed", "{{ a }}"],
    "bwrap": ["bwrap", "--ro-bind", "/", "/", "--", "awk", "{{ a }}"],
    "proxychains": ["proxychains4", "-q", "ssh", "host", "{{ a }}"],
    "a short form of a long option": ["sed", "--expr=s/{{ a }}/b/", "file"],
    "a short form with a separate value": ["sed", "-n", "--e", "s/{{ a }}/b/", "file"],
    "a long option from the caller": ["sed", "--{{ a }}", "-e", "p", "file"],
    "the rest of a long option": ["psql", "--com{{ a }}", "db"],
    "a short form before an operand": ["awk", "--field", ",", "/{{ a }}/", "file"],
    "a wrapper's short form": ["sudo", "--us", "root", "timeout", "--sig=KILL", "--kill", "1", "5", "awk", "{{ a }}"],
    "a wrapper's option from the caller": ["nice", "--{{ a }}", "sed", "-n", "s/{{ b }}//"],
    "a container in the background": ["docker", "exec", "--detach", "app", "awk", "{{ a }}"],
    "powershell": ["pwsh", "-NoProfile", "-Comm", "{{ a }}"],
    "powershell's base64": ["powershell", "-EncodedCommand", "{{ a }}"],
}


@pytest.mark.parametrize("items", CODE.values(), ids=list(CODE))
def test_expression_in_code_of_an_interpreter_is_a_load_error(items: list[ArgvItem]) -> None:
    found = [problem for problem in problems_in(*items) if "would be read as code by" in problem]
    assert found, problems_in(*items)
    assert len(problems_in(*items)) == 1
    assert "Use `script:`, where inputs are variables" in found[0]


NO_CODE: dict[str, list[ArgvItem]] = {
    "operands of a shell's code": ["sh", "-c", 'grep "$1" log', "sh", "{{ a }}"],
    "a script's argument": ["bash", "script.sh", "-c", "{{ a }}"],
    "a python script's argument": ["python3", "script.py", "-c", "{{ a }}"],
    "a python module's argument": ["python3", "-m", "json.tool", "--", "{{ a }}"],
    "code's argument": ["python3", "-c", "import sys; print(sys.argv)", "{{ a }}"],
    "sudo's user": ["sudo", "-u", "{{ a }}", "ls"],
    "awk's data": ["awk", "-v", "x={{ a }}", "{print x}", "{{ b }}"],
    "awk with a program file": ["awk", "-f", "x.awk", "{{ a }}"],
    "sed's file": ["sed", "-i", "s/a/b/", "--", "{{ a }}"],
    "sed with a script": ["sed", "-e", "s/a/b/", "{{ a }}"],
    "ssh's host": ["ssh", "-p", "{{ n }}", "{{ a }}", "uptime"],
    "env's assignment": ["env", "A={{ a }}", "ls"],
    "timeout's duration": ["timeout", "{{ n }}", "ls"],
    "tar's file": ["tar", "-czf", "{{ a }}", "-C", "{{ b }}", "."],
    "find's name": ["find", "/srv", "-name", "{{ a }}"],
    "an option of another program": ["grep", "-e", "{{ a }}", "-c", "{{ b }}"],
    "names in arguments": ["man", "awk", "{{ a }}"],
    "rsync's files": ["rsync", "-a", "--", "{{ a }}", "{{ b }}"],
    "a target of make in the file": ["make", "-j", "{{ n }}", "{{ shell }}"],
    "vim's file": ["vim", "-es", "-c", "wq", "--", "{{ a }}"],
    "git's arguments": ["git", "-C", "{{ b }}", "log", "-n", "{{ n }}", "--", "{{ a }}"],
    "flags of git for other subcommands": ["git", "clean", "-x", "-f", "--", "{{ a }}"],
    "arguments of git submodule": ["git", "submodule", "foreach", "git", "grep", "-e", "{{ a }}"],
    "git's base": ["git", "rebase", "--exec", "make test", "--", "{{ a }}"],
    "deno's script": ["deno", "run", "main.ts", "{{ a }}"],
    "docker's image": ["docker", "run", "--rm", "curlimages/curl", "--", "{{ a }}"],
    "docker's container": ["docker", "exec", "{{ a }}", "ls", "--", "{{ b }}"],
    "a file in a pod": ["kubectl", "exec", "pod", "--", "cat", "--", "{{ a }}"],
    "docker's logs": ["docker", "logs", "--tail", "{{ n }}", "{{ a }}"],
    "a device of ip": ["ip", "link", "show", "{{ a }}"],
    "the time of at": ["at", "-f", "job.sh", "{{ a }}"],
    "sshpass's secret": ["sshpass", "-p", "{{ a }}", "ssh", "host", "uptime"],
    "short forms of harmless options": ["awk", "--assi", "x={{ a }}", "--fil=x.awk", "{{ b }}"],
    "a whole option that begins another": ["tar", "--checkpoint={{ n }}", "-xf", "{{ b }}"],
}


@pytest.mark.parametrize("items", NO_CODE.values(), ids=list(NO_CODE))
def test_expressions_in_other_arguments_are_accepted(items: list[ArgvItem]) -> None:
    assert problems_in(*items) == []


def test_names_of_interpreters_are_in_lower_case() -> None:
    assert all(name == name.lower() for name in [*INTERPRETERS, *COMMAND_WRAPPERS])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sh", "`sh -c`"),
        ("pwsh", "`pwsh -c`"),
        ("octave", "`octave --eval`"),
        ("eval", "`eval`"),
        ("tmux", "`tmux`, which passes it to a shell"),
    ],
)
def test_reason_names_the_interpreter(name: str, reason: str) -> None:
    assert INTERPRETERS[name].reason(name) == reason


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12) | st.sampled_from(
    ["-", "--", "-rf", "", " ", "a\nb", "$(id)", "{{ b }}", "%s", "\\"]
)
GIVEN = st.fixed_dictionaries(
    {},
    optional={
        "a": TEXTS | st.none(),
        "b": TEXTS | st.none(),
        "flag": st.booleans(),
        "items": st.lists(TEXTS, max_size=4),
        "n": st.integers(-5, 2**53),
    },
)
ITEMS: dict[str, ArgvItem] = {
    "literal": "literal *;'\"\\ü",
    "end of options": "--",
    "text": "{{ a }}",
    "mixed": "--a={{ a }}:{{ b }}",
    "list": "{{ items }}",
    "number": "{{ n }}",
    "group": ("-g", "{{ b }}"),
    "group with a list": ("-i", "{{ items }}"),
    "conditional": when("flag", "-v", "{{ a }}"),
}


def stated(kind: str, variables: JsonObject) -> list[tuple[str, bool]]:
    """Return the arguments of an item and whether the caller provided them, as a second implementation of the rules."""
    a, b, n = (variables.get(name) for name in ("a", "b", "n"))
    texts = [(text, True) for text in variables.get("items", [])]
    rows: dict[str, list[tuple[str, bool]]] = {
        "literal": [("literal *;'\"\\ü", False)],
        "end of options": [("--", False)],
        "text": [] if a is None else [(a, True)],
        "mixed": [] if a is None or b is None else [(f"--a={a}:{b}", False)],
        "list": texts,
        "number": [] if n is None else [(f"{n:.0f}", True)],
        "group": [] if b is None else [("-g", False), (b, True)],
        "group with a list": [("-i", False), *texts] if texts else [],
        "conditional": [("-v", False)] + ([] if a is None else [(a, True)]) if variables.get("flag") else [],
    }
    return rows[kind]


def is_refused(arguments: list[tuple[str, bool]]) -> bool:
    before_end = arguments[: arguments.index(("--", False))] if ("--", False) in arguments else arguments
    return any(text.startswith("-") for text, is_the_callers in before_end if is_the_callers)


def seen_by_child(arguments: list[str]) -> list[str]:
    program = [sys.executable, "-X", "utf8", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))"]
    output = subprocess.run([*program, *arguments], check=True, capture_output=True, timeout=30).stdout
    seen: list[str] = json.loads(output)
    return seen


@examples(30)
@given(calls=st.lists(st.tuples(st.lists(st.sampled_from(sorted(ITEMS)), max_size=6), GIVEN), min_size=10, max_size=30))
def test_child_receives_the_documented_arguments(calls: list[tuple[list[str], JsonObject]]) -> None:
    """Many calls share one child, with separators, because starting a child is slow."""
    built, expected = [], []
    for kinds, variables in calls:
        arguments = [argument for kind in kinds for argument in stated(kind, variables)]
        command: list[ArgvItem] = ["program", *(ITEMS[kind] for kind in kinds)]
        if is_refused(arguments):
            with pytest.raises(ExecutionError, match="must not start with `-`"):
                build(command, **variables)
        else:
            built += ["next call", *build(command, **variables)[1:]]
            expected += ["next call", *(text for text, _ in arguments)]
    assert seen_by_child(built) == expected
