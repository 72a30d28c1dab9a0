"""Interpolation of `${…}`: values, types, and masking of secrets."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.config.loader import LoadedConfig, load
from gateway.config.models.interpolated_text import Interpolation, parts_of
from gateway.errors import ConfigError

ENVIRON = {"NAME": "ops", "EMPTY": "", "TOKEN": "s3cret-token", "PORT": "8080", "FLAG": "true", "RATIO": "0.5"}


def loaded(tmp_path: Path, text: str) -> LoadedConfig:
    main = tmp_path / "config.yaml"
    main.write_text(text, encoding="utf-8")
    config = load(main, environ=ENVIRON)
    config.raise_errors()
    return config


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    return [f"{problem.path}: {problem.message}" for problem in caught.value.problems]


def arguments(tmp_path: Path, *items: str) -> list[str]:
    quoted = ", ".join("'" + item.replace("'", "''") + "'" for item in items)
    config = loaded(tmp_path, f"tools: {{t: {{shell: {{command: [echo, {quoted}]}}}}}}\n")
    shell = config.document.tools["t"].shell
    assert shell is not None
    assert shell.command is not None
    return [item for item in shell.command[1:] if isinstance(item, str)]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${env:NAME}", "ops"),
        ("a-${env:NAME}-b", "a-ops-b"),
        ("${env:NAME}${env:PORT}", "ops8080"),
        ("${env:MISSING:-x}", "x"),
        ("${env:MISSING:-}", ""),
        ("${env:EMPTY:-x}", "x"),
        ("${env:EMPTY}", ""),
        ("${env:MISSING:-a:-b}", "a:-b"),
        ('${env:MISSING:-{"a": 1}}', '{"a": 1}'),
        ("$${env:NAME}", "${env:NAME}"),
        ("$NAME and $$", "$NAME and $$"),
        ("{{ name }}", "{{ name }}"),
    ],
)
def test_variables_and_defaults_are_interpolated(tmp_path: Path, written: str, value: str) -> None:
    assert arguments(tmp_path, written) == [value]


def test_variable_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    text = "tools: {t: {content: '${env:LATIN}'}}\n"
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml", environ={"LATIN": os.fsdecode(b"caf\xe9")}).raise_errors()
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == ("tools.t.content", "the value of the variable LATIN is not UTF-8")


def test_interpolated_text_keeps_its_parts(tmp_path: Path) -> None:
    (text,) = arguments(tmp_path, "{{ a }}-${env:NAME}-$${x}")
    assert parts_of(text) == ("{{ a }}-", Interpolation("ops", secret=False), "-${x}")


def test_whole_interpolation_is_converted_to_the_type_of_its_field(tmp_path: Path) -> None:
    text = """\
server: {page_size: "${env:PORT}", version: "${env:PORT}", cache_ttl: "${env:RATIO}"}
listen: {sse: "${env:FLAG}", max_body: "${env:PORT}"}
limits: {sessions: "${env:MISSING:-12}"}
tools:
  t:
    shell: {command: [ls], success_codes: ["${env:MISSING:-3}"], env: {PORT: "${env:PORT}"}}
"""
    document = loaded(tmp_path, text).document
    assert document.server.page_size == 8080
    assert document.server.version == "8080"
    assert document.server.cache_ttl.total_seconds() == 0.5
    assert document.listen.sse is True
    assert document.listen.max_body == 8080
    assert document.limits.sessions.in_all == 12
    shell = document.tools["t"].shell
    assert shell is not None
    assert shell.success_codes == (3,)
    assert shell.env == {"PORT": "8080"}


@pytest.mark.parametrize(
    ("text", "environ", "value"),
    [
        ("listen: {sse: '${env:V}'}", "FALSE", "sse=False"),
        ("listen: {console: '${env:V}'}", "false", "console=None"),
        ("listen: {console: '${env:V}'}", "true", "scopes=['console']"),
        ("limits: {threads: '${env:V}'}", "0x10", "threads=16"),
        ("tools: {t: {content: x, input: {n: {type: number, default: '${env:V}'}}}}", "1e5", "'default': 100000.0"),
        ("upstreams: {u: {command: x, queue: '${env:V}'}}", "3", "queue=3"),
        ("tools: {t: {http: {url: 'https://x/'}, tests: [{http: {status: '${env:V}'}}]}}", "503", ""),
    ],
)
def test_whole_interpolation_has_the_type_of_unquoted_text(tmp_path: Path, text: str, environ: str, value: str) -> None:
    main = tmp_path / "config.yaml"
    main.write_text(text, encoding="utf-8")
    config = load(main, environ={"V": environ})
    config.raise_errors()
    assert value in repr(config.document)


def test_quoted_text_is_not_converted(tmp_path: Path) -> None:
    assert problems(tmp_path, 'listen: {sse: "true"}') == [
        "listen.sse: expected true or false, got the text 'true'; remove the quotes"
    ]


def test_secret_file_is_relative_and_loses_one_newline(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "key").write_text("one\ntwo\n\n")
    (tmp_path / "more" / "api.yaml").write_text(
        'connections: {api: {base_url: "https://example.com", headers: {X-Key: "${file:key}"}}}\n'
    )
    config = loaded(tmp_path, "include: [more/api.yaml]\n")
    header = config.document.connections["api"].headers["X-Key"]
    assert header == "one\ntwo\n"
    assert parts_of(header) == (Interpolation("one\ntwo\n", secret=True),)
    assert tmp_path / "more" / "key" in config.files


def test_scripts_are_not_interpolated(tmp_path: Path) -> None:
    text = "tools: {t: {shell: {script: 'echo ${HOME} ${env:NAME} $${x} ${a'}}}\n"
    shell = loaded(tmp_path, text).document.tools["t"].shell
    assert shell is not None
    assert shell.script == "echo ${HOME} ${env:NAME} $${x} ${a"


def test_anchors_in_extension_sections_are_interpolated_at_their_aliases(tmp_path: Path) -> None:
    text = """\
x-unused: ${MISSING}
x-headers: &headers {Authorization: "Bearer ${env:TOKEN}"}
connections: {api: {base_url: "https://example.com", headers: *headers}}
"""
    config = loaded(tmp_path, text)
    assert config.document.connections["api"].headers == {"Authorization": "Bearer s3cret-token"}
    assert config.redactor.text("Bearer s3cret-token") == "Bearer ***"


@pytest.mark.parametrize(
    ("place", "is_secret"),
    [
        ("connections: {c: {base_url: 'https://x', headers: {A: '${env:TOKEN}'}}}", True),
        ("connections: {c: {base_url: 'https://x', query: {a: 'k=${env:TOKEN}'}}}", True),
        ("connections: {c: {base_url: 'https://x', tls: {key: '${env:TOKEN}'}}}", True),
        ("connections: {c: {base_url: 'https://${env:TOKEN}'}}", False),
        ("tools: {t: {http: {url: 'https://x', json: {a: [{b: '${env:TOKEN}'}]}}}}", True),
        ("tools: {t: {http: {url: 'https://x', form: {a: '${env:TOKEN}'}}}}", True),
        ("tools: {t: {http: {url: 'https://x', body: '${env:TOKEN}'}}}", True),
        ("tools: {t: {http: {url: 'https://x', query: {a: '${env:TOKEN}'}}}}", True),
        ("tools: {t: {shell: {command: [a], env: {A: '${env:TOKEN}'}}}}", True),
        ("tools: {t: {shell: {command: [a], stdin: '${env:TOKEN}'}}}", True),
        ("tools: {t: {shell: {command: [a, '${env:TOKEN}']}}}", False),
        ("tools: {t: {shell: {command: [a], env: {A: '${env:MISSING:-default-key}'}}}}", True),
        ("tools: {t: {description: '${env:TOKEN}', shell: {command: [a]}}}", False),
        ("tools: {env: {description: '${env:TOKEN}', shell: {command: [a]}}}", False),
        ("tools: {t: {shell: {command: [a, '${file:key}']}}}", True),
        ("resources: {r: {uri: 'r://x', shell: {command: [a], env: {A: '${env:TOKEN}'}}}}", True),
    ],
)
def test_field_determines_whether_a_variable_is_secret(tmp_path: Path, place: str, *, is_secret: bool) -> None:
    (tmp_path / "key").write_text("from-a-file")
    config = loaded(tmp_path, place)
    masked = [config.redactor.text(value) for value in ("s3cret-token", "default-key", "from-a-file")]
    assert ("***" in masked) is is_secret


@pytest.mark.parametrize(
    "place",
    [
        "server: {name: '${file:key}'}",
        "server: {icons: [{src: '${file:key}'}]}",
        "tools: {t: {title: '${file:key}', shell: {command: [a]}}}",
        "tools: {t: {tags: ['${file:key}'], shell: {command: [a]}}}",
        "tools: {t: {meta: {a: {b: '${file:key}'}}, shell: {command: [a]}}}",
        "tools: {t: {annotations: {title: '${file:key}'}, shell: {command: [a]}}}",
        "tools: {t: {input: {a: {type: string, default: '${file:key}'}}, shell: {command: [a]}}}",
        "tools: {t: {input_schema: {description: '${file:key}'}, shell: {command: [a]}}}",
        "tools: {t: {output: {schema: {title: '${file:key}'}}, shell: {command: [a]}}}",
        "tools: {t: {content: '${file:key}'}}",
        "tools: {t: {content: [{text: 'a ${file:key}'}]}}",
        "resources: {r: {uri: 'r://${file:key}', text: a}}",
        "resources: {r: {uri: 'r://x', text: '${file:key}'}}",
        "resources: {r: {uri: 'r://{x}', text: a, complete: {x: ['${file:key}']}}}",
        "prompts: {p: {messages: [{user: '${file:key}'}]}}",
        "prompts: {p: {messages: [{user: {resource: '${file:key}'}}]}}",
        "prompts: {p: {arguments: {a: '${file:key}'}, messages: [{user: x}]}}",
        "prompts: {p: {arguments: {a: {default: '${file:key}'}}, messages: [{user: x}]}}",
    ],
)
def test_secret_file_is_rejected_in_client_visible_fields(tmp_path: Path, place: str) -> None:
    (tmp_path / "key").write_text("from-a-file")
    (problem,) = problems(tmp_path, place)
    assert problem.endswith("`${file:key}` is a secret, but clients can see this text")


def test_unreadable_secret_file_is_named_as_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    text = """\
tools:
  a: {shell: {command: [a, "${file:/no/such/file}"]}}
  b: {shell: {command: [a, "${file:folder}"]}}
  c: {shell: {command: [a, "${file:binary}"]}}
  d: {shell: {command: [a, "${file:/dev/zero}"]}}
  e: {shell: {command: [a, "${file:}"]}}
"""
    assert problems(tmp_path, text) == [
        "tools.a.shell.command.1: /no/such/file: no such file",
        "tools.b.shell.command.1: folder: is a directory",
        "tools.c.shell.command.1: binary: is not UTF-8 (byte 0xff)",
        "tools.d.shell.command.1: /dev/zero: is not a regular file",
        "tools.e.shell.command.1: `${file:}` has no path. Write `${file:/path}`",
    ]


def test_verbatim_values_are_plain_text(tmp_path: Path) -> None:
    text = """\
tools:
  t:
    meta: {a: ["${env:NAME}"]}
    input: {x: {type: string, default: "${env:NAME}"}}
    output: {schema: {title: "${env:NAME}"}}
    shell: {command: [a]}
"""
    tool = loaded(tmp_path, text).document.tools["t"]
    assert tool.meta is not None
    assert tool.input is not None
    assert tool.output is not None
    assert tool.output.schema_ is not None
    schema = tool.input["x"]
    assert isinstance(schema, dict)
    for found in (tool.meta["a"][0], schema["default"], tool.output.schema_["title"]):
        assert type(found) is str
        assert found == "ops"


def test_version_can_be_interpolated(tmp_path: Path) -> None:
    assert loaded(tmp_path, 'version: "${env:MISSING:-1}"\n').document.version == 1


def test_interpolation_in_a_schema_has_the_type_of_its_keyword(tmp_path: Path) -> None:
    schema = """{type: object, properties: {
      port: {type: integer, maximum: "${env:PORT}", default: "${env:PORT}", enum: ["${env:PORT}", "1${env:PORT}"]},
      name: {type: string, default: "${env:PORT}", maxLength: "${env:PORT}", description: "${env:PORT}"},
      maximum: {type: [number, "null"], const: "${env:RATIO}", examples: ["${env:RATIO}"]},
      free: {default: "${env:PORT}"}}, additionalProperties: "${env:FLAG}"}"""
    tool = loaded(
        tmp_path, f"tools: {{t: {{input_schema: {schema}, content: x, output: {{schema: {schema}}}}}}}\n"
    ).document.tools["t"]
    assert tool.output is not None
    for given in (tool.input_schema, tool.output.schema_):
        assert given == {
            "type": "object",
            "properties": {
                "port": {"type": "integer", "maximum": 8080, "default": 8080, "enum": [8080, "18080"]},
                "name": {"type": "string", "default": "8080", "maxLength": 8080, "description": "8080"},
                "maximum": {"type": ["number", "null"], "const": 0.5, "examples": [0.5]},
                "free": {"default": "8080"},
            },
            "additionalProperties": True,
        }


def test_interpolation_in_an_input_has_the_type_of_its_keyword(tmp_path: Path) -> None:
    text = 'tools: {t: {input: {n: {type: integer, default: "${env:PORT}", required: "${env:FLAG}"}}, content: x}}\n'
    assert loaded(tmp_path, text).document.tools["t"].input == {
        "n": {"type": "integer", "default": 8080, "required": True}
    }


def test_secret_file_can_have_a_default(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "key").write_text("from-a-file\n")
    assert arguments(tmp_path, "${file:absent:-spare-key}", "${file:empty:-}", "${file:key:-x}", "${file:empty}") == [
        "spare-key",
        "",
        "from-a-file",
        "",
    ]
    config = loaded(tmp_path, "tools: {t: {shell: {command: [echo, '${file:absent:-spare-key}']}}}\n")
    assert config.redactor.finds("spare-key")
    assert tmp_path / "absent" in config.files


def test_names_are_not_interpolated(tmp_path: Path) -> None:
    text = "tools: {'${env:NAME}': {content: x}}\nprompts: {'a${file:key}': {messages: [{user: x}]}}\n"
    assert problems(tmp_path, text) == [
        "tools.${env:NAME}: `${…}` is allowed only in values, not in keys",
        "prompts.a${file:key}: `${…}` is allowed only in values, not in keys",
    ]


def test_digest_of_a_secret_is_keyed(tmp_path: Path) -> None:
    (tmp_path / "pin").write_text("1234")
    digest = loaded(tmp_path, "tools: {t: {shell: {command: [echo, '${file:pin}']}}}\n").files[tmp_path / "pin"]
    assert digest == loaded(tmp_path, "tools: {t: {shell: {command: [cat, '${file:pin}']}}}\n").files[tmp_path / "pin"]
    assert digest != sha256(b"1234").hexdigest()
