"""The Call page: forms, progress, input requests and results."""

import re

import pytest
from playwright.async_api import expect

from tests.console.browser.tab import Tab

pytestmark = [pytest.mark.build, pytest.mark.asyncio(loop_scope="session")]


async def test_a_form_becomes_a_call_and_its_result_is_shown(ours: Tab) -> None:
    page = ours.page
    await ours.open("call", tool="greet")
    await page.get_by_label("name").fill("A")
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_text(re.compile("shorter than 2|at least 2|2 characters")).first).to_be_visible()
    await page.get_by_label("name").fill("Ada")
    await page.get_by_label("formal").check()
    await expect(page.get_by_label("JSON", exact=True)).to_have_value(re.compile('"tone": "formal"'))
    await page.get_by_role("button", name="Run").click()
    result = page.get_by_role("region", name="Result")
    await expect(result).to_contain_text("Hello, Ada")
    await expect(result.get_by_role("heading", name="Structured content")).to_be_visible()
    assert await ours.serious_findings() == []


async def test_the_first_click_on_run_counts_while_the_list_of_what_to_call_is_open(ours: Tab) -> None:
    page = ours.page
    await ours.open("call", tool="greet")
    await page.get_by_label("name").fill("Ada")
    await page.get_by_label("What to call").fill("greet")
    await expect(page.locator("#call-list li")).to_have_count(1)
    await page.get_by_role("button", name="Run").click()
    await expect(page.locator("#call-list li")).to_have_count(0)
    await expect(page.get_by_role("region", name="Result")).to_contain_text("Hello, Ada")


async def test_progress_is_shown_while_a_call_runs_and_the_call_can_be_cancelled(ours: Tab) -> None:
    page = ours.page
    (ours.served.folder / "go").unlink(missing_ok=True)
    await ours.open("call", tool="steps")
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_text("first step").first).to_be_visible()
    assert await ours.serious_findings() == []
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("cancelled")
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_text("first step").first).to_be_visible()
    (ours.served.folder / "go").touch()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("second step")


async def test_a_question_of_a_call_is_a_dialog(ours: Tab) -> None:
    page = ours.page
    await ours.open("call", tool="deploy")
    await page.get_by_label("branch").fill("main")
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_role("dialog", name="Run deploy?")).to_be_visible()
    assert await ours.serious_findings() == []
    await page.get_by_role("dialog").get_by_role("button", name="Run").click()
    question = page.get_by_role("dialog", name="Input requested")
    await expect(question).to_contain_text("Deploy main to production?")
    await question.get_by_role("button", name="Decline").click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("tool error")
    await page.get_by_role("button", name="Run").click()
    await page.get_by_role("dialog").get_by_role("button", name="Run").click()
    await question.get_by_role("button", name="Accept").click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("Deployed main.")


async def test_a_resource_is_read_and_a_prompt_is_got(ours: Tab) -> None:
    page = ours.page
    await ours.open("call", resource="doc://manual")
    await page.get_by_role("button", name="Read").click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("The manual.")
    await ours.open("call", prompt="triage")
    await page.get_by_label("service").fill("w")
    await expect(page.locator("datalist option[value=worker]")).to_be_attached()
    await page.get_by_label("service").fill("worker")
    await page.get_by_role("button", name="Get").click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("Triage worker.")


async def test_a_call_is_seen_in_the_traffic_as_it_is_made(ours: Tab) -> None:
    page = ours.page
    await ours.open("traffic")
    await ours.served.call("fails")
    await expect(ours.row("fails").first).to_contain_text("tool error")
    await ours.row("fails").first.click()
    panel = page.get_by_role("complementary", name="Details")
    await expect(panel).to_contain_text("It did not work.")
    await page.keyboard.press("Escape")
    await expect(panel).to_have_count(0)
    await page.go_back()
    await expect(panel).to_be_visible()
