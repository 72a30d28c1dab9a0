from argparse import Namespace

from gateway.cli.client.requests import open_client
from gateway.cli.console import Console
from gateway.cli.explain import show_explanation
from gateway.cli.options import add_request
from gateway.cli.parser import CONFIG_AS_FIRST_WORD, Parser
from gateway.cli.results import pieces_of, show_contents, show_pieces
from gateway.cli.user_input import arguments_of, name_and_pairs, split_config


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        words="[CONFIG] NAME [key=value …]",
        summary="Get a prompt, from the file in this process or from a running server.",
        epilog=f"""\
examples:
  {name} config.yaml triage service=web
  {name} --url http://127.0.0.1:8000 triage service=web --raw

{CONFIG_AS_FIRST_WORD}""",
    )
    arguments.add_argument("words", nargs="+", metavar="NAME", help="the prompt and its arguments")
    add_request(arguments, explains="the files, resources or function that it would use, without running it")
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    config, words = split_config(options.words, url=options.url, needs_name=True)
    name, *pairs = name_and_pairs(words, "NAME")
    params = {"name": name, "arguments": arguments_of(pairs)}
    if options.explain:
        return await show_explanation(options, config, "prompts/get", params, out, hints)
    async with open_client(options, config, hints, about=name) as client:
        result = await client.request("prompts/get", params)
    if options.raw or options.output is not None:
        show_contents(result, pieces_of(message["content"] for message in result["messages"]), options, out, hints)
        return 0
    for message in result["messages"]:
        out.line(out.styled(out.clean(f"{message['role']}:"), "bold"))
        show_pieces(pieces_of([message["content"]]), out=out, hints=hints)
    return 0
