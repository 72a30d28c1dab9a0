"""Failures that users of other gateways have reported, and the tests that cover them."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
REPORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "one bad server takes down the rest": (
        "test_failures.test_bad_servers_do_not_affect_others",
        "test_failures.test_four_bad_servers_do_not_affect_sixteen_others",
        "test_failures.test_hanging_call_times_out_without_delaying_others",
        "test_controls.test_five_failed_calls_open_the_circuit_and_a_probe_closes_it",
    ),
    "a failed first connect is never tried again": (
        "test_failures.test_failed_first_connection_is_retried_and_announced",
    ),
    "a server is called running while a class of its tools is missing": (
        "test_failures.test_server_with_a_failed_list_is_degraded",
    ),
    "sessions are stale after an upstream's restart": (
        "test_sessions.test_restarted_upstream_is_used_at_once",
        "test_failures.test_crash_in_a_call_shows_stderr_and_restarts_the_server",
    ),
    "list_changed is lost": (
        "test_failures.test_changed_list_is_served",
        "test_real_servers.test_new_tools_are_announced",
    ),
    "list_changed is relayed although nothing changed": (
        "test_failures.test_announcement_without_a_change_is_not_relayed",
    ),
    "elicitation, sampling or roots are silently dropped": (
        "test_questions.test_elicitation_reaches_the_user",
        "test_questions.test_sampling_reaches_the_model",
        "test_questions.test_roots_reach_the_upstream",
        "test_questions.test_declined_question_is_reported_to_the_client",
        "test_questions.test_disabled_question_is_declined_with_a_note",
        "test_sessions.test_changed_roots_are_announced_only_in_the_clients_session",
    ),
    "orphans of npx trees": (
        "test_failures.test_children_end_with_the_daemon",
        "test_failures.test_reloads_leave_no_children_of_removed_upstreams",
        "test_sessions.test_upstream_session_ends_with_the_client_session",
    ),
    "a start is as slow as the slowest server": ("test_failures.test_start_does_not_wait_with_remembered_lists",),
    "truncated names collide": (
        "test_failures.test_long_and_duplicate_names_are_omitted_and_reported",
        "test_failures.test_duplicate_uri_is_omitted_with_a_hint_on_prefixes",
        "test_failures.test_template_of_the_file_takes_precedence",
    ),
    "90,000 tokens of tools with no way to choose": (
        "test_views.test_views_contain_selected_upstream_tools",
        "test_sessions.test_overrides_and_limits_apply_to_upstream_tools",
    ),
    "one user's state is seen by another": (
        "test_sessions.test_each_client_has_its_own_session_unless_shared",
        "test_signing_in.test_token_exchange_is_per_caller",
    ),
    "the gateway's bearer token leaks upstream": (
        "test_signing_in.test_credentials_do_not_follow_cross_origin_redirects",
    ),
    "the caller's bearer token is forwarded": (
        "test_sessions.test_callers_credentials_are_not_forwarded",
        "test_signing_in.test_token_exchange_is_per_caller",
    ),
    "a session is bound to a token that is refreshed": (
        "test_signing_in.test_session_uses_the_callers_current_token",
        "test_signing_in.test_rejected_token_is_fetched_again",
    ),
}


@pytest.mark.parametrize("promise", REPORTS)
def test_each_report_has_tests(promise: str) -> None:
    for each in REPORTS[promise]:
        module, _, name = each.partition(".")
        tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}, each
