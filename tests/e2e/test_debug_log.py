"""At log level debug, the log contains every message and no secret."""

import signal
from pathlib import Path

from tests.e2e.daemon import call, serving, text_of

SECRET = 'quoted "s3cret" ünd more'


async def test_every_message_is_logged_at_level_debug_with_secrets_masked(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n", encoding="utf-8")
    config = tmp_path / "config.yaml"
    config.write_text(
        """\
tools:
  show:
    description: Shows its arguments.
    input: {text: string}
    shell: {command: [printf, "%s\\n%s", "{{ text }}", "${file:secret}"], progress: stdout}
""",
        encoding="utf-8",
    )
    message = call("show", text=f"mine: {SECRET}")
    message["params"]["_meta"]["progressToken"] = 7
    async with serving(config, "--stdio", "--log-level", "debug") as daemon:
        daemon.send(message)
        answers = [await daemon.receive() for _ in range(3)]
        assert text_of(answers[-1]) == "mine: ***\n***"
        received = await daemon.event("message received")
        assert received["binding"] == "stdio"
        assert received["message"]["params"]["arguments"] == {"text": "mine: ***"}
        daemon.hang_up()
        assert await daemon.exit_code() == 0
    said = "".join(daemon.errors)
    assert said.count('"message sent"') == 3
    assert '"notifications/progress"' in said
    assert "s3cret" not in said


async def test_served_secret_stays_masked_while_a_new_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret-s3cret")
    config = tmp_path / "config.yaml"
    config.write_text("tools: {show: {input: {text: string}, shell: {command: [printf, '${file:secret}']}}}")
    async with serving(config, "--stdio", "--log-level", "debug") as daemon:
        assert text_of(await daemon.ask(call("show", text="early"))) == "***"
        config.write_text("tools: {show: {python: none}}")
        daemon.signal(signal.SIGHUP)
        await daemon.event("reload refused")
        assert text_of(await daemon.ask(call("show", text="mine: s3cret-s3cret"))) == "***"
        daemon.hang_up()
        assert await daemon.exit_code() == 0
    said = "".join(daemon.errors)
    assert "mine: ***" in said
    assert "s3cret" not in said


async def test_no_message_is_logged_at_level_info(config: Path) -> None:
    async with serving(config, "--stdio") as daemon:
        assert text_of(await daemon.ask(call("echo", text="x"))) == "x"
        daemon.hang_up()
        assert await daemon.exit_code() == 0
    assert '"message ' not in "".join(daemon.errors)
