"""Compiles uses of `caller` in templates, and reports invalid ones."""

from collections.abc import Iterable, Mapping
from typing import Final

from jinja2 import nodes

from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject
from gateway.language.scope import Scope

CALLER: Final = "caller"
CLAIMS: Final = "claims"
FACTS: Final = ("subject", "issuer", "scopes", "roles", CLAIMS, "client")
_PREFIX: Final = f"{CALLER}."


def use_fact(fact: str | None, scope: Scope, *, claim: str | None = None) -> bool:
    """Record that a template reads a fact or a claim of the caller. Return False after reporting an error."""
    if not scope.has_callers:
        scope.problems.error(f"`{CALLER}` requires `auth`: without it, callers are not identified")
        return False
    if fact not in FACTS:
        known = ", ".join(f"{_PREFIX}{name}" for name in FACTS)
        given = CALLER if fact is None else f"{_PREFIX}{fact}"
        hint = did_you_mean(fact, FACTS) if fact is not None else ""
        scope.problems.error(f"`{given}` is not a known variable{hint or f'; use one of {known}'}")
        return False
    scope.caller_facts.add(fact if claim is None else f"{CLAIMS}.{claim}")
    return True


def use_all_facts(scope: Scope) -> None:
    """Record that all facts of the caller can be read, so that callers do not share cached results."""
    if scope.has_callers:
        scope.caller_facts.update(FACTS)


def named_facts(names: Iterable[str], variables: JsonObject) -> dict[str, Json]:
    """Return facts of the caller by name, such as `caller.claims.team`. Leave out claims that the credential lacks."""
    found: dict[str, Json] = {}
    for name in sorted(names):
        fact, _, claim = name.partition(".")
        value = variables[CALLER][fact]
        if not claim or claim in value:
            found[f"{_PREFIX}{name}"] = value[claim] if claim else value
    return found


def claim_named_by(node: nodes.Node) -> str | None:
    """Return the path of the claim that an expression reads, such as `address.city`, or None."""
    match node:
        case nodes.Getattr(node=owner, attr=str(name)) | nodes.Getitem(node=owner, arg=nodes.Const(value=str(name))):
            if _is_claims(owner):
                return name
            outer = claim_named_by(owner)
            return None if outer is None else f"{outer}.{name}"
        case _:
            return None


def _is_claims(node: nodes.Node) -> bool:
    match node:
        case (
            nodes.Getattr(node=nodes.Name(name="caller"), attr="claims")
            | nodes.Getitem(node=nodes.Name(name="caller"), arg=nodes.Const(value="claims"))
        ):
            return True
        case _:
            return False


def missing_claim(path: str) -> ExecutionError:
    return ExecutionError(f"the caller's credential has no claim `{path}`")


def is_fact_path(name: str) -> bool:
    """Whether a variable of a URI template is a fact of the caller, such as `caller.subject`."""
    return name == CALLER or name.startswith(_PREFIX)


def use_fact_path(name: str, scope: Scope) -> None:
    fact, _, claim = name.removeprefix(CALLER).removeprefix(".").partition(".")
    use_fact(fact or None, scope, claim=claim.partition(".")[0] or None if fact == CLAIMS else None)


def variable(name: str, variables: JsonObject) -> Json:
    """Return the value of a variable of a URI template, which is an input or a fact of the caller.

    Raises:
        ExecutionError: the caller's credential lacks the claim.
    """
    if CALLER not in variables or not is_fact_path(name):
        return variables.get(name)
    value: Json = variables
    path = name.split(".")
    for step in path:
        if not isinstance(value, Mapping) or step not in value:
            raise missing_claim(".".join(path[2:]))
        value = value[step]
    return value
