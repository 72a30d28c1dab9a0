"""The command `completion`, which prints a shell completion script.

The script runs `completion --words` with the words of the command line, and offers each line of the output.
"""

import argparse
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gateway.cli import COMMANDS, load
from gateway.cli.console import Console
from gateway.cli.options import one_shot_settings
from gateway.cli.parser import Parser
from gateway.cli.user_input import split_config
from gateway.config.definition_source import load_definitions
from gateway.distribution import DISTRIBUTION
from gateway.json_types import Json

# IFS separates candidates at line ends only, because a candidate can contain spaces.
_BASH: Final = """\
_mcp_gateway() {
  local IFS=$'\\n'
  COMPREPLY=($("$1" completion bash --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o bashdefault -o default -F _mcp_gateway mcp-gateway @DISTRIBUTION@
"""
_ZSH: Final = """\
_mcp_gateway() {
  local -a found
  found=("${(@f)$("${words[1]}" completion zsh --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if (( ${#found[1]} )); then compadd -- "${found[@]}"; else _files; fi
}
compdef _mcp_gateway mcp-gateway @DISTRIBUTION@
"""
_FISH: Final = """\
function __mcp_gateway
  set -l typed (commandline -opc) (commandline -ct)
  set -l found ($typed[1] completion fish --words $typed[2..-1] 2>/dev/null)
  if count $found >/dev/null
    printf '%s\\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
for name in mcp-gateway @DISTRIBUTION@
  complete -c $name -f -a '(__mcp_gateway)'
end
"""
_SCRIPTS: Final = {
    name: script.replace("@DISTRIBUTION@", DISTRIBUTION)
    for name, script in (("bash", _BASH), ("zsh", _ZSH), ("fish", _FISH))
}
_NAMES: Final = {"call": "tools", "prompt": "prompts"}
"""The section of the configuration file that contains the names to complete, by command."""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Print a script that completes commands, flags, tools and prompts in a shell.",
        epilog=f"""\
examples:
  source <({name} bash)    # in ~/.bashrc
  source <({name} zsh)     # in ~/.zshrc, after compinit
  {name} fish > ~/.config/fish/completions/mcp-gateway.fish""",
    )
    arguments.add_argument("shell", metavar="SHELL", choices=_SCRIPTS, help=", ".join(_SCRIPTS))
    # Use REMAINDER, because the words can look like flags of this command.
    arguments.add_argument("--words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return arguments


async def run(options: Namespace, out: Console, _hints: Console) -> int:
    if options.words is None:
        out.line(_SCRIPTS[options.shell])
        return 0
    for candidate in candidates(options.words):
        out.line(candidate)
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """Return the completions of the last word. If there are none, the shell completes file names."""
    *before, current = words or [""]
    return sorted({word for word in _possible(before, current) if word.startswith(current)})


def _possible(before: Sequence[str], current: str) -> Iterable[str]:
    match before:
        case []:
            return [*COMMANDS, "help", "--help", "--version"]
        case ["help"]:
            return COMMANDS
        case [name, *others] if name in COMMANDS:
            return _of_command(name, others, current)
        case _:
            return []


def _of_command(name: str, before: Sequence[str], current: str) -> Iterable[str]:
    actions = load(name).parser(name).arguments
    if current.startswith("-"):
        return [flag for action in actions for flag in action.option_strings if flag.startswith("--")]
    positional = [word for word in before if not word.startswith("-")]
    asked = next((action for action in actions if before and before[-1] in action.option_strings), None)
    if asked is None or asked.nargs == 0:  # the last word is not a flag with a value
        asked = next((action for action in actions if not action.option_strings and not positional), None)
        if name in _NAMES:
            return _names(_NAMES[name], positional)
    return [] if asked is None or asked.choices is None else map(str, asked.choices)


def _names(part: str, positional: Sequence[str]) -> Iterable[str]:
    config, rest = split_config(positional, url=None, needs_name=True)
    if rest:
        return []
    try:
        settings = one_shot_settings(Namespace(), config)
        names: Mapping[str, Json] = getattr(load_definitions(settings.config).document, part)
    except Exception:  # noqa: BLE001 - Boundary: completion shows no errors
        return []
    return names
