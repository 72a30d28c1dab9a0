"""What users of other gateways have reported, and the tests that fail where it happens here."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
PROMISES: Final[Mapping[str, tuple[str, ...]]] = {
    "one bad server takes down the rest": (
        "test_failures.test_one_bad_server_costs_the_others_nothing",
        "test_failures.test_four_bad_servers_of_twenty_are_named_and_the_sixteen_others_answer",
        "test_failures.test_a_call_that_hangs_ends_at_its_timeout_and_holds_up_no_other",
        "test_controls.test_five_failed_calls_open_the_circuit_and_one_probe_closes_it",
    ),
    "a failed first connect is never tried again": (
        "test_failures.test_a_first_connect_that_fails_is_tried_again_and_what_comes_of_it_is_announced",
    ),
    "a server is called running while a class of its tools is missing": (
        "test_failures.test_a_server_of_which_a_list_cannot_be_had_is_no_healthy_one",
    ),
    "sessions are stale after an upstream's restart": (
        "test_sessions.test_a_restarted_upstream_is_used_again_at_once",
        "test_failures.test_a_server_that_dies_in_a_call_shows_its_last_words_and_is_started_again",
    ),
    "list_changed is lost": (
        "test_failures.test_a_changed_list_is_taken_up",
        "test_real_servers.test_a_client_hears_of_new_tools",
    ),
    "list_changed is relayed although nothing changed": (
        "test_failures.test_an_announcement_without_a_change_changes_nothing",
    ),
    "elicitation, sampling or roots are dropped without a word": (
        "test_questions.test_elicitation_reaches_the_user",
        "test_questions.test_sampling_reaches_the_model",
        "test_questions.test_roots_are_told",
        "test_questions.test_a_client_that_cannot_be_asked_is_told_that_the_question_was_declined",
        "test_questions.test_an_upstream_that_may_not_ask_is_declined_and_the_caller_hears_of_it",
        "test_sessions.test_a_change_of_a_clients_roots_is_told_to_its_own_session_alone",
    ),
    "orphans of npx trees": (
        "test_failures.test_no_child_outlives_the_daemon",
        "test_failures.test_a_hundred_reloads_leave_no_child_of_an_upstream_that_changed_or_went",
        "test_sessions.test_the_session_of_a_client_ends_with_the_clients_own",
    ),
    "a start is as slow as the slowest server": (
        "test_failures.test_the_start_waits_no_longer_than_five_seconds_and_not_at_all_with_a_memory",
    ),
    "names are cut until two are one": (
        "test_failures.test_names_that_are_too_long_or_taken_are_not_offered_and_both_places_are_named",
        "test_failures.test_a_uri_that_is_taken_is_not_offered_and_a_prefix_is_proposed",
        "test_failures.test_a_template_of_the_file_goes_before_an_equal_one_of_an_upstream",
    ),
    "90,000 tokens of tools with no way to choose": (
        "test_views.test_tools_of_an_upstream_are_in_the_views_that_choose_them",
        "test_sessions.test_a_tool_of_an_upstream_is_held_to_everything_that_the_file_says",
    ),
    "one user's state is seen by another": (
        "test_sessions.test_each_client_has_a_session_of_its_own_unless_it_is_shared",
        "test_signing_in.test_callers_sign_in_each_by_a_token_of_their_own_and_lists_are_asked_for_without_one",
    ),
    "the gateway's bearer leaks upstream": ("test_signing_in.test_no_credentials_follow_a_redirect_to_another_origin",),
    "the caller's bearer passes through": (
        "test_sessions.test_the_callers_own_credentials_are_not_passed_on",
        "test_signing_in.test_callers_sign_in_each_by_a_token_of_their_own_and_lists_are_asked_for_without_one",
    ),
    "a session is bound to a token that is refreshed": (
        "test_signing_in.test_a_callers_session_goes_on_with_the_token_that_the_caller_has_now",
        "test_signing_in.test_a_token_that_is_not_taken_any_more_is_fetched_anew",
    ),
}


@pytest.mark.parametrize("promise", PROMISES)
def test_each_report_has_tests_that_are_there(promise: str) -> None:
    for each in PROMISES[promise]:
        module, _, name = each.partition(".")
        tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}, each
