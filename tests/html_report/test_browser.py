"""The page in a real browser: curves, hover, zoom, keyboard, both colour schemes, no error."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_runs import HOSTILE

from jobrun.html_report.page import page
from jobrun.runs.rundir import RunDir

selenium = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="no browser: apt-get install chromium chromium-driver",
)
Driver = Any


def opened(dark: bool = False) -> Driver:
    options = selenium.ChromeOptions()
    options.binary_location = BROWSER
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1300,1000",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))


@pytest.fixture(scope="module")
def browser() -> Iterator[Driver]:
    driver = opened()
    yield driver
    driver.quit()


def until(check: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "the browser did not come there"
        time.sleep(0.02)
    return found


def show(browser: Driver, runs: list[RunDir], file: Path, refresh: float = 0) -> None:
    """Write a report and open it; its charts in view are drawn."""
    file.write_text(page(runs, refresh=refresh))
    browser.get(file.as_uri())
    browser.execute_script("sessionStorage.clear()")
    browser.get(file.as_uri())
    ready(browser)


def ready(browser: Driver) -> None:
    until(lambda: browser.execute_script("return document.body.dataset.ready"))
    until(lambda: browser.execute_script("return !!document.querySelector('#curve-0 .trace')"))


def find(browser: Driver, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def range_of(browser: Driver, id: str) -> tuple[float, float]:
    low, high = browser.execute_script(f"return {id}._fullLayout.xaxis.range".replace(id, _at(id)))
    return float(low), float(high)


def _at(id: str) -> str:
    return f"document.getElementById('{id}')"


def errors(browser: Driver) -> list[str]:
    return [str(entry["message"]) for entry in browser.get_log("browser")]


def test_every_section_is_drawn_without_an_error(
    browser: Driver, three: list[RunDir], tmp_path: Path
) -> None:
    show(browser, three, tmp_path / "r.html")
    for id in ("curve-0", "curve-1", "curve-2", "parallel", "scatter", "timeline-chart"):
        browser.execute_script(f"{_at(id)}.scrollIntoView()")
        until(lambda id=id: browser.execute_script(f"return !!{_at(id)}._fullLayout"))
    assert len(browser.find_elements("css selector", "#curve-0 .scatterlayer .trace")) == 3
    assert len(browser.find_elements("css selector", "#runs-table tbody tr")) == 3
    assert errors(browser) == []


def test_text_of_users_stays_text(browser: Driver, three: list[RunDir], tmp_path: Path) -> None:
    show(browser, three, tmp_path / "r.html")
    assert browser.title == "many and 2 more - jobrun"
    heads = [h.text for h in browser.find_elements("css selector", "#curves h3")]
    assert heads == ["loss", "gain", HOSTILE]
    assert HOSTILE in find(browser, "#log-lines").text
    assert browser.find_elements("css selector", "#runs-table b, .main-svg b") == []


def test_hover_zoom_and_reset(browser: Driver, three: list[RunDir], tmp_path: Path) -> None:
    show(browser, three, tmp_path / "r.html")
    chart = find(browser, "#curve-0 .nsewdrag")
    mouse = selenium.ActionChains(browser)
    mouse.move_to_element_with_offset(chart, -100, 20).move_by_offset(3, 3).perform()
    label = until(lambda: browser.find_elements("css selector", "#curve-0 .hovertext"))
    assert "many" in label[0].text
    whole = range_of(browser, "curve-0")
    drag = selenium.ActionChains(browser).move_to_element_with_offset(chart, -100, -50)
    drag.click_and_hold().move_by_offset(80, 90).move_by_offset(40, 20).release().perform()
    until(lambda: range_of(browser, "curve-0") != whole)
    low, high = range_of(browser, "curve-0")
    assert whole[0] < low < high < whole[1]
    selenium.ActionChains(browser).move_to_element(chart).double_click().perform()
    until(lambda: range_of(browser, "curve-0") == whole)
    assert errors(browser) == []


def test_the_keyboard_zooms_moves_and_resets(
    browser: Driver, three: list[RunDir], tmp_path: Path
) -> None:
    show(browser, three, tmp_path / "r.html")
    chart, whole = find(browser, "#curve-0"), range_of(browser, "curve-0")
    chart.send_keys("+")
    until(lambda: range_of(browser, "curve-0") != whole)
    low, high = range_of(browser, "curve-0")
    assert high - low == pytest.approx(0.6 * (whole[1] - whole[0]))
    chart.send_keys("\ue014")  # the right arrow
    until(lambda: range_of(browser, "curve-0")[0] > low)
    chart.send_keys("0")
    until(lambda: range_of(browser, "curve-0") == whole)


def test_the_controls_of_curves(browser: Driver, three: list[RunDir], tmp_path: Path) -> None:
    show(browser, three, tmp_path / "r.html")

    def traces() -> int:
        return len(browser.find_elements("css selector", "#curve-0 .scatterlayer .trace"))

    find(browser, "#run-shown-1").click()
    until(lambda: traces() == 2)
    find(browser, "#log-scale").click()
    kind = f"return {_at('curve-0')}._fullLayout.yaxis.type"
    until(lambda: browser.execute_script(kind) == "log")
    browser.execute_script(
        "const s = document.getElementById('smoothing'); s.value = 0.9;"
        "s.dispatchEvent(new Event('input'))"
    )
    until(lambda: traces() == 4)
    assert find(browser, "#smoothed").text == "0.9"
    find(browser, "#over option[value=elapsed]").click()
    title = f"return {_at('curve-0')}._fullLayout.xaxis.title.text"
    until(lambda: browser.execute_script(title) == "seconds")
    find(browser, "#show-none").click()
    until(lambda: traces() == 0)
    assert errors(browser) == []


def test_the_table_sorts_and_the_log_filters(
    browser: Driver, three: list[RunDir], tmp_path: Path
) -> None:
    show(browser, three, tmp_path / "r.html")

    def column(number: int) -> list[str]:
        found = browser.find_elements("css selector", f"#runs-table td:nth-child({number})")
        return [cell.text for cell in found]

    browser.execute_script("document.querySelectorAll('#runs-table th button')[2].click()")
    assert column(3) == ["0.01", "0.2", "0.5"]
    browser.execute_script("document.querySelectorAll('#runs-table th button')[2].click()")
    assert column(3) == ["0.5", "0.2", "0.01"]
    assert len(browser.find_elements("css selector", "#runs-table td.best")) >= 2
    find(browser, "#log-filter").send_keys("OWNED")
    until(lambda: find(browser, "#log-lines").text.count("\n") == 0)
    assert find(browser, "#log-count").text.startswith("1 of ")


def test_a_page_that_reloads_keeps_what_was_chosen(
    browser: Driver, three: list[RunDir], tmp_path: Path
) -> None:
    show(browser, three, tmp_path / "r.html", refresh=1)
    find(browser, "#log-scale").click()
    find(browser, "#log-filter").send_keys("epoch")
    browser.execute_script("window.before = true")
    until(lambda: not browser.execute_script("return window.before"))
    until(lambda: browser.execute_script("return document.body.dataset.ready"))
    assert find(browser, "#log-scale").is_selected()
    assert find(browser, "#log-filter").get_attribute("value") == "epoch"
    assert errors(browser) == []


def test_it_follows_a_dark_setting(three: list[RunDir], tmp_path: Path) -> None:
    driver = opened(dark=True)
    try:
        show(driver, three[:1], tmp_path / "r.html")
        script = "return getComputedStyle(document.body).backgroundColor"
        assert driver.execute_script(script) == "rgb(16, 22, 31)"
    finally:
        driver.quit()


def test_twenty_runs_of_a_thousand_epochs_open_in_two_seconds(
    browser: Driver, twenty: list[RunDir], tmp_path: Path
) -> None:
    """On a machine with nothing else to do; here the best of five counts."""
    file = tmp_path / "r.html"
    show(browser, twenty, file)
    times = []
    for _ in range(5):
        begun = time.monotonic()
        browser.get(file.as_uri())
        ready(browser)
        times.append(time.monotonic() - begun)
    assert min(times) < 2
    assert errors(browser) == []
