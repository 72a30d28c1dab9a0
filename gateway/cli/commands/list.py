from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Final

from gateway.cli.client.remote import GatewayClient, every_page
from gateway.cli.client.requests import open_client
from gateway.cli.console import Console, counted
from gateway.cli.options import add_json, add_lists_all, add_url
from gateway.cli.parser import CONFIG_AS_FIRST_WORD, Parser
from gateway.cli.results import show_raw
from gateway.cli.user_input import split_config
from gateway.errors import ConfigError, ErrorCode, RpcError
from gateway.json_types import Json, JsonObject

_LISTS: Final = {
    "tools": ("tools/list", "tools"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
    "skills": ("skills/list", "skills"),
}
"""The list method of each kind, and the key of the list in the result."""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        words="[CONFIG] [KIND]",
        summary="List the tools, resources, templates, prompts and skills of a file or a running server.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} config.yaml tools
  {name} --url http://127.0.0.1:8000 resources --json

{CONFIG_AS_FIRST_WORD}""",
    )
    arguments.add_argument("words", nargs="*", default=[], metavar="KIND", help=f"{', '.join(_LISTS)} (default: all)")
    add_lists_all(arguments)
    add_json(arguments, "the definitions as JSON")
    add_url(arguments)
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    is_kind = options.words[:1] and options.words[0] in _LISTS  # even if a directory has the same name
    config, kinds = (None, options.words) if is_kind else split_config(options.words, url=options.url)
    for kind in kinds:
        if kind not in _LISTS:
            raise ConfigError.at(kind, f"expected one of {', '.join(_LISTS)}")
    async with open_client(options, config, hints) as client:
        lists = {kind: await _listed(client, kind) for kind in kinds or _LISTS}
    if options.json:
        show_raw(lists, out)
        return 0
    for kind, items in lists.items():
        if items and len(lists) > 1:
            out.line(out.styled(kind, "dim"))
        if items:
            out.table((_ROWS[kind](item) for item in items), style="cyan")
    if not any(lists.values()):
        hints.line("No definitions.")
    return 0


async def _listed(client: GatewayClient, kind: str) -> list[Json]:
    try:
        return await every_page(client, *_LISTS[kind])
    except RpcError as error:
        if error.code == ErrorCode.METHOD_NOT_FOUND:  # servers without prompts do not need to support prompts/list
            return []
        raise


def _tool_row(tool: JsonObject) -> tuple[str, str, str]:
    schema = tool["inputSchema"]
    required = schema.get("required", [])
    inputs = [name if name in required else f"[{name}]" for name in schema.get("properties", {})]
    return tool["name"], " ".join(inputs), _about(tool)


def _prompt_row(prompt: JsonObject) -> tuple[str, str, str]:
    inputs = [
        argument["name"] if argument.get("required") else f"[{argument['name']}]"
        for argument in prompt.get("arguments", [])
    ]
    return prompt["name"], " ".join(inputs), _about(prompt)


def _skill_row(skill: JsonObject) -> tuple[str, str, str]:
    files = skill["resources"]
    count = counted(len(files), "file") if isinstance(files, list) else "dynamic"
    return skill["uri"], count, _about(skill["frontmatter"])


def _about(definition: JsonObject) -> str:
    return (definition.get("description") or definition.get("title") or "").partition("\n")[0]


_ROWS: Final[Mapping[str, Callable[[JsonObject], tuple[str, str, str]]]] = {
    "tools": _tool_row,
    "resources": lambda resource: (resource["uri"], resource.get("mimeType", ""), _about(resource)),
    "templates": lambda template: (template["uriTemplate"], template.get("mimeType", ""), _about(template)),
    "prompts": _prompt_row,
    "skills": _skill_row,
}
