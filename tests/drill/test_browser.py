"""The page in a real browser: nothing sticks out, on a desk or on a telephone, and nothing goes wrong."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path

import pytest

from pairbus.drill.report.page import render_drill
from pairbus.drill.result import DrillResult

from .sample import BEGAN, make_failed, make_result, make_wide

DEADLINE = 50.0
# A desk, the narrowest page that is laid out like one, a tablet, a telephone.
WIDTHS = (1280, 901, 700, 390)
PAGES: dict[str, Callable[[], DrillResult]] = {
    "result": make_result,
    "failed": make_failed,
    "wide": make_wide,
}
# Each page in a frame for each width, so that one browser looks at them all. What may scroll by itself
# is left out; a letter that sticks out of its chart is cut off.
SCRIPT = """
addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, edge = page.documentElement.clientWidth;
    const name = one => `${one.tagName} ${one.getAttribute("class")}: ${one.textContent.slice(0, 40)}`;
    const seen = one => one.getBoundingClientRect().width > 0;
    page.querySelectorAll("details").forEach(one => one.open = true);
    const wide = [...page.querySelectorAll("main *")].filter(one => seen(one)
      && !one.closest(".wide, svg") && one.getBoundingClientRect().right > edge + 1);
    const cut = [...page.querySelectorAll("svg text")].filter(one => seen(one)
      && one.getBoundingClientRect().right > one.closest("svg").getBoundingClientRect().right + 1);
    const small = [...page.querySelectorAll("svg text, p, td, li, span")].filter(one => seen(one)
      && parseFloat(page.defaultView.getComputedStyle(one).fontSize) < 11);
    return {page: frame.title, width: edge, scrolls: page.documentElement.scrollWidth,
            wide: wide.map(name), cut: cut.map(name), small: small.map(name)};
  });
  document.body.textContent = JSON.stringify(found);
});
"""


@dataclass(frozen=True)
class Look:
    """What the browser made of the pages, and what it complained about."""

    found: list[dict[str, object]]
    complaints: list[str]


def dump(chromium: Path, page: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """The page as the browser has it once it is loaded; the browser and its children are gone afterwards."""
    command = [
        str(chromium), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
        "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={home}", "--enable-logging=stderr",
        "--window-size=1400,900", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    environment = {**os.environ, "XDG_CONFIG_HOME": str(home), "XDG_CACHE_HOME": str(home)}
    browser = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = browser.communicate(timeout=DEADLINE)
    finally:
        if browser.poll() is None:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
    return subprocess.CompletedProcess(command, browser.returncode, output, errors)


@pytest.fixture(scope="module")
def look(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Look:
    place = tmp_path_factory.mktemp("browser")
    frames = [
        f'<iframe title="{name}" style="width:{width}px;height:900px;border:0" '
        f'srcdoc="{escape(render_drill(make(), now=BEGAN))}"></iframe>'
        for name, make in PAGES.items()
        for width in WIDTHS
    ]
    page = place / "look.html"
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><script>{SCRIPT}</script><body>{"".join(frames)}',
        encoding="utf-8",
    )
    done = dump(chromium, page, place / "home")
    assert done.returncode == 0, done.stderr
    body = done.stdout.split("<body>")[-1].split("</body>")[0]
    complaints = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Look(json.loads(unescape(body)), complaints)


def test_nothing_sticks_out_and_every_letter_can_be_read(look: Look) -> None:
    assert [(one["page"], one["width"]) for one in look.found] == [
        (name, width) for name in PAGES for width in WIDTHS
    ]
    for one in look.found:
        assert one["scrolls"] == one["width"], one
        assert (one["wide"], one["cut"], one["small"]) == ([], [], []), one


def test_the_browser_has_nothing_to_complain_about(look: Look) -> None:
    assert look.complaints == []
