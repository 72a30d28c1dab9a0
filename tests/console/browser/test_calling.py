"""The Call page: forms, progress, input requests and results."""

import re

import pytest
from playwright.async_api import expect

from tests.console.browser.tab import Tab

pytestmark = [pytest.mark.build, pytest.mark.asyncio(loop_scope="session")]


async def test_form_makes_a_call_and_shows_its_result(ours: Tab) -> None:
    page = ours.page
    await ours.open("call", tool="greet")
    await page.get_by_label("name").fill("Ada")
    await page.get_by_label("formal").check()
    await expect(page.get_by_label("JSON", exact=True)).to_have_value(re.compile('"tone": "formal"'))
    await page.get_by_role("button", name="Run").click()
    result = page.get_by_role("region", name="Result")
    await expect(result).to_contain_text("Hello, Ada")
    await expect(result.get_by_role("heading", name="Structured content")).to_be_visible()
    await expect(result.get_by_text("The text content is the same JSON.")).to_be_visible()
    await expect(result.get_by_text("Hello, Ada")).to_have_count(1)
    assert await ours.serious_findings() == []


async def test_wrong_argument_is_reported_once_at_its_field(ours: Tab) -> None:
    page = ours.page
    await ours.open("call", tool="greet")
    await page.get_by_label("name").fill("A")
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_text("Not sent. 1 problem in the arguments.")).to_be_visible()
    await expect(page.get_by_text(re.compile("at least 2|shorter than 2"))).to_have_count(1)
    await expect(page.get_by_label("name")).to_be_focused()
    await expect(page.get_by_role("region", name="Result")).to_have_count(0)
    assert await ours.serious_findings() == []
    await page.get_by_role("button", name="Send anyway").click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("tool error")


async def test_list_has_descriptions_and_a_search_that_opens_the_first_match(ours: Tab) -> None:
    page = ours.page
    await ours.open("call")
    chooser = page.get_by_role("navigation", name="What to call")
    await expect(chooser.get_by_role("link", name=re.compile("greet Says hello"))).to_be_visible()
    await expect(chooser.get_by_role("link", name=re.compile("deploy.*destructive"))).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("lets see nothing")
    await expect(chooser).to_contain_text("Nothing matches")
    await page.get_by_label("Search tools, resources and prompts").fill("says hello")
    await expect(chooser.get_by_role("link")).to_have_count(1)
    await page.keyboard.press("ArrowDown")
    await expect(chooser.get_by_role("link")).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="greet", level=2)).to_be_visible()
    await expect(chooser.locator("[aria-current]")).to_contain_text("greet")


async def test_history_opens_the_form_with_earlier_arguments(ours: Tab) -> None:
    page = ours.page
    await ours.open("call", tool="greet")
    await page.get_by_label("name").fill("Grace")
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("Hello, Grace")
    await ours.open("call")
    history = page.get_by_role("region", name="Calls of this browser session")
    assert await ours.serious_findings() == []
    await history.get_by_role("link").first.click()
    await expect(page.get_by_label("name")).to_have_value("Grace")
    await history.get_by_role("button", name="Clear history").click()
    await expect(history).to_have_count(0)


async def test_list_of_objects_is_a_table(ours: Tab) -> None:
    page = ours.page
    await ours.open("call", tool="services")
    await page.get_by_role("button", name="Run").click()
    table = page.get_by_role("region", name="Result").get_by_role("table")
    await expect(table.locator("th")).to_have_text(["name", "restarts"])
    await expect(table.locator("td")).to_have_text(["api", "0", "web", ""])
    assert await ours.serious_findings() == []
    await page.get_by_role("tab", name="Tree").click()
    await expect(page.get_by_role("region", name="Structured content")).to_contain_text("total: 2")


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


async def test_question_of_a_call_is_a_dialog(ours: Tab) -> None:
    page = ours.page
    await ours.open("call", tool="deploy")
    await page.get_by_label("branch").fill("main")
    await page.get_by_role("button", name="Run").click()
    dialog = page.get_by_role("dialog", name="Run deploy?")
    await expect(dialog).to_contain_text("This tool is marked as destructive")
    await expect(dialog).to_contain_text('"branch": "main"')
    color = "(it) => getComputedStyle(it).backgroundColor"
    usual, red = page.get_by_role("button", name="Explain"), dialog.get_by_role("button", name="Run")
    assert await usual.evaluate(color) != await red.evaluate(color)
    assert await ours.serious_findings() == []
    await page.get_by_role("dialog").get_by_role("button", name="Run").click()
    question = page.get_by_role("dialog", name="Input requested")
    await expect(question).to_contain_text("Deploy main to production?")
    await expect(question).to_contain_text("The tool decides what happens without an answer.")
    assert await ours.serious_findings() == []
    await question.get_by_role("button", name="Decline").click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("tool error")
    await page.get_by_role("button", name="Run").click()
    await page.get_by_role("dialog").get_by_role("button", name="Run").click()
    await question.get_by_role("button", name="Accept").click()
    await expect(page.get_by_role("region", name="Result")).to_contain_text("Deployed main.")


async def test_resource_and_prompt_are_shown(ours: Tab) -> None:
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


async def test_call_appears_in_the_traffic(ours: Tab) -> None:
    page = ours.page
    await ours.open("traffic")
    await ours.served.call("fails")
    await expect(ours.row("fails").first).to_contain_text("tool error")
    await expect(ours.row("fails").first).to_contain_text("It did not work.")
    await ours.row("fails").first.click()
    panel = page.get_by_role("complementary", name="Details")
    await expect(panel).to_contain_text("It did not work.")
    assert await panel.locator("h3").all_inner_texts() == ["Answer", "Request", "Details"]
    await page.keyboard.press("Escape")
    await expect(panel).to_have_count(0)
    await page.go_back()
    await expect(panel).to_be_visible()


async def test_recorded_call_can_be_called_again_and_filters_be_removed(ours: Tab) -> None:
    page = ours.page
    await ours.served.call("greet", name="Alan")
    await page.goto(f"{ours.served.page('traffic')}?name=greet")
    await ours.row("greet").first.click()
    again = page.get_by_role("link", name="Call again")
    await expect(again).not_to_have_attribute("href", re.compile("Alan"))
    await again.click()
    await expect(page.get_by_label("name")).to_have_value("Alan")
    await page.go_back()
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="name greet").click()
    await expect(page.get_by_role("button", name="Clear filters")).to_have_count(0)
    await page.get_by_label("Outcome").select_option("tool_error")
    await page.get_by_role("button", name="Clear filters").click()
    await expect(page.get_by_label("Outcome")).to_have_value("")
