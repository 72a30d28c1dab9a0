"""Required scopes from `access` and `auth.rules`, and the catalogs of callers."""

import pytest

from gateway.catalog.catalog import MAX_PARTS, CallerCatalogs, scoped
from gateway.catalog.primitives import RequiredScopes
from gateway.errors import ConfigError
from tests.catalog.conftest import Compile

AUTH = "auth: {api_keys: {ci: {sha256: " + "ab" * 32 + "}}, rules: [%s]}\n"
TOOLS = """
tools:
  open: {description: For all., content: "1"}
  own: {description: Has separate scopes., content: "2", access: {scopes: [a]}}
  deploy_app: {description: Deploys., content: "3", tags: [ops], annotations: {destructive: true}}
  deploy_db: {description: Deploys., content: "4", tags: [ops], access: {scopes: [a], visible: true}}
resources:
  deploy_log: {uri: "log:///x", text: "5", description: A log.}
prompts:
  deploy_ask: {description: Asks., messages: [{user: "6"}]}
"""


def needs(access: RequiredScopes) -> tuple[str, bool]:
    return " ".join(sorted(access.scopes)), access.is_visible


@pytest.mark.parametrize(
    ("rules", "needed"),
    [
        ("", {"own": ("a", False), "deploy_db": ("a", True)}),
        (
            "{match: {name: 'deploy_*', kind: tools}, scopes: [b, c]}",
            {"own": ("a", False), "deploy_app": ("b c", False), "deploy_db": ("a b c", False)},
        ),
        (
            "{match: {name: 'deploy_*'}, scopes: [b], visible: true}",
            {
                "own": ("a", False),
                "deploy_app": ("b", True),
                "deploy_db": ("a b", True),
                "deploy_log": ("b", True),
                "deploy_ask": ("b", True),
            },
        ),
        (
            "{match: {annotation: destructive}, scopes: [d]}",
            {"own": ("a", False), "deploy_app": ("d", False), "deploy_db": ("a", True)},
        ),
        (
            "{match: {tag: ops, name: '*_db'}, scopes: [b]}, {match: {tag: ops}, scopes: [c]}",
            {"own": ("a", False), "deploy_app": ("c", False), "deploy_db": ("a b c", False)},
        ),
    ],
)
async def test_scopes_of_access_and_matching_rules_are_combined(
    compiled: Compile, rules: str, needed: dict[str, tuple[str, bool]]
) -> None:
    catalog = compiled(AUTH % rules + TOOLS)
    primitives = [*catalog.tools.values(), *catalog.resources.values(), *catalog.prompts.values()]
    assert {each.name: needs(each.access) for each in primitives if each.access.scopes} == needed
    assert catalog.warnings == ()


async def test_rule_without_matches_is_a_warning(compiled: Compile) -> None:
    catalog = compiled(AUTH % "{match: {name: 'deply_*'}, scopes: [b]}" + TOOLS)
    (warning,) = catalog.warnings
    assert (warning.path, warning.message) == ("auth.rules.0.match", "does not match any definition")


async def test_access_without_auth_is_an_error(compiled: Compile) -> None:
    with pytest.raises(ConfigError) as caught:
        compiled(TOOLS)
    assert [(each.path, each.message) for each in caught.value.problems] == [
        (f"tools.{name}.access", "requires `auth`: without it, callers have no scopes") for name in ("own", "deploy_db")
    ]


async def test_access_is_not_reported_if_auth_is_invalid(compiled: Compile) -> None:
    with pytest.raises(ConfigError) as caught:
        compiled("auth: {api_keys: {ci: {}}}\n" + TOOLS)
    assert [each.path for each in caught.value.problems] == ["auth.api_keys.ci"]


async def test_caller_catalog_has_allowed_and_visible_primitives(compiled: Compile) -> None:
    catalog = compiled(AUTH % "{match: {kind: prompts}, scopes: [b]}" + TOOLS)
    assert list(scoped(catalog, frozenset()).tools) == ["open", "deploy_app", "deploy_db"]
    assert list(scoped(catalog, frozenset("a")).tools) == ["open", "own", "deploy_app", "deploy_db"]
    assert list(scoped(catalog, frozenset("a")).prompts) == []
    assert scoped(catalog, frozenset("b")).prompts == catalog.prompts
    assert scoped(catalog, frozenset("b")).fingerprints["tools"] != catalog.fingerprints["tools"]
    assert scoped(catalog, frozenset("b")).fingerprints["prompts"] == catalog.fingerprints["prompts"]


async def test_callers_with_equal_relevant_scopes_share_a_catalog(compiled: Compile) -> None:
    parts, catalog = CallerCatalogs(), compiled(AUTH % "" + TOOLS)
    assert parts.of(catalog, None) is catalog
    assert parts.of(catalog, frozenset({"a", "else"})) is catalog
    assert parts.of(catalog, frozenset({"x"})) is parts.of(catalog, frozenset({"y"}))


async def test_number_of_cached_parts_is_limited(compiled: Compile) -> None:
    scopes = [f"s{number}" for number in range(MAX_PARTS + 10)]
    tools = "".join(f"  t{each}: {{description: A., content: x, access: {{scopes: [{each}]}}}}\n" for each in scopes)
    catalog = compiled(AUTH % "" + "tools:\n" + tools)
    parts = CallerCatalogs()
    for each in scopes:
        assert list(parts.of(catalog, frozenset({each})).tools) == [f"t{each}"]
    assert len(parts._kept) == MAX_PARTS
