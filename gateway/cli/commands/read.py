from argparse import Namespace

from gateway.cli.client.requests import open_client
from gateway.cli.console import Console
from gateway.cli.explain import show_explanation
from gateway.cli.options import add_request
from gateway.cli.parser import CONFIG_AS_FIRST_WORD, Parser
from gateway.cli.results import pieces_of, show_contents
from gateway.cli.user_input import check_text, split_config
from gateway.errors import ConfigError


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        words="[CONFIG] URI",
        summary="Read a resource, from the file in this process or from a running server.",
        epilog=f"""\
examples:
  {name} config.yaml runbooks:///web.md
  {name} --url http://127.0.0.1:8000 incident://42 --raw

{CONFIG_AS_FIRST_WORD}""",
    )
    arguments.add_argument("words", nargs="+", metavar="URI", help="the resource")
    add_request(arguments, explains="the file, command or request that provides it, without reading it")
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    config, uris = split_config(options.words, url=options.url, needs_name=len(options.words) == 1)
    if len(uris) != 1:
        raise ConfigError.at(" ".join(options.words), "expected one URI, after CONFIG or --url")
    [uri] = uris
    check_text(uri)
    if options.explain:
        return await show_explanation(options, config, "resources/read", {"uri": uri}, out, hints)
    async with open_client(options, config, hints, about=uri.partition(":")[0]) as client:
        result = await client.request("resources/read", {"uri": uri})
    show_contents(result, pieces_of(result["contents"]), options, out, hints)
    return 0
