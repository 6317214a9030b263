"""The pages in a real browser: every control, what comes in while somebody looks, both colours, a phone, no mouse.

Where there is no Chromium, or no Playwright, these tests are skipped and say so. FEDBANDIT_SCREENSHOTS=docs/figures
writes the pictures of the documentation.
"""

from __future__ import annotations

import io
import re
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedbandit.federation.one_process import Federation
from fedbandit.federation.setup import founding
from fedbandit.federation.timing import Timing
from fedbandit.plan import Plan
from fedbandit.web.html_report import ReportPart
from fedbandit.web.html_report import page as report_page
from fedbandit.web.server import PageServer
from fedbandit.web.status_page import status_server
from tests.federation.small import small_plan
from tests.web.conftest import CHROMIUM, DONE, running, visit_all

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
axes = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: apt-get install chromium")

SMALL = "?silos=20&people_per_day=10&days=60&dim=5&epsilon=8"
TOKEN = "the token of this test"
SERIOUS = ("serious", "critical")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def open_(browser: Any) -> Iterator[Open]:
    """Opens a page; at the end nothing was said on the console, and nothing came from another host."""
    contexts, said, asked = [], list[str](), list[str]()

    def opened(url: str, width: int = 1280, height: int = 800, scheme: str = "light", **options: Any) -> Any:
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    expected = ("401", "ERR_CONNECTION_REFUSED", "422")  # what some tests provoke
    assert [text for text in said if not any(word in text for word in expected)] == []
    assert [url for url in asked if not url.startswith(("http://127.0.0.1:", "file:", "data:", "blob:"))] == []


def well(page: Any) -> None:
    """axe-core finds nothing serious, and nothing is wider than the window."""
    found = axes.Axe().run(page).response["violations"]
    serious = [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found if one["impact"] in SERIOUS]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


def shot(page: Any, folder: Path | None, name: str, full: bool = False) -> None:
    """A picture for the documentation, of few colours and so of few bytes."""
    if folder is not None:
        small(page.screenshot(full_page=full), folder / f"{name}.png")


def small(picture: bytes, file: Path) -> None:
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(64).save(file, optimize=True)


# -- the planner ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked(planner: PageServer) -> str:
    """The planner of a small consortium, which is quick."""
    return f"{planner.url}{SMALL}"


def headline(page: Any) -> str:
    return str(page.locator(".headline").inner_text())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_planner_answers_plays_and_can_be_read(
    open_: Open, planner: PageServer, pictures: Path | None, scheme: str
) -> None:
    page = open_(planner.url if pictures else f"{planner.url}{SMALL}", scheme=scheme)
    page.wait_for_selector(".headline")
    assert headline(page).startswith("Federate, with secure-sum")
    page.wait_for_selector("#played svg")
    page.wait_for_selector("#budgets table")
    if pictures:
        page.get_by_text(re.compile(r"^[1-9]\d+ of \d+ runs|All 20 runs")).wait_for(timeout=300_000)
    shot(page, pictures, f"planner-{scheme}")
    page.locator("#curves-title").scroll_into_view_if_needed()
    if pictures:
        section = page.locator("section", has=page.locator("#curves-title"))
        small(section.screenshot(), pictures / f"planner-curves-{scheme}.png")
    well(page)


def test_a_phone_has_room_for_all_of_it(open_: Open, asked: str, pictures: Path | None) -> None:
    page = open_(asked, 360, 740, "light", has_touch=True)
    page.wait_for_selector(".headline")
    page.wait_for_selector("#played svg")
    page.locator("#advice-title").scroll_into_view_if_needed()
    shot(page, pictures, "planner-phone")
    well(page)


CONTROLS = [
    ("silos", "24"),
    ("people_per_day", "12"),
    ("days", "80"),
    ("visits", "3"),
    ("arms", "3"),
    ("dim", "6"),
    ("fields", "number, 2"),
    ("epsilon", "2"),
    ("delta", "0.00001"),
    ("mean_visits", "1.5"),
    ("back_after", "5"),
    ("consenting", "0.9"),
    ("drift", "0.01"),
]
CHOICES = [("sync", "weekly"), ("trust", "central"), ("adjacency", "add-remove")]


def test_every_control_changes_the_answer_and_the_link(open_: Open, asked: str) -> None:
    page = open_(asked)
    page.wait_for_selector(".headline")
    page.locator("details > summary", has_text="More").click()
    for name, value in CONTROLS:
        before = page.locator("#advice").inner_text() + page.locator("#plans").inner_text()
        with page.expect_response(re.compile("/api/plan")) as answer:
            page.fill(f"#asked-{name}", value)
        assert answer.value.ok, name
        page.wait_for_timeout(60)
        assert re.search(rf"[?&]{name}=", page.url), name
        assert page.locator("#advice").inner_text() + page.locator("#plans").inner_text() != before, name
    for name, value in CHOICES:
        with page.expect_response(re.compile("/api/plan")) as answer:
            page.select_option(f"#asked-{name}", value)
        assert answer.value.ok, name
        assert f"{name}={value}" in page.url
    said = headline(page)
    page.wait_for_selector("#plans table")
    again = open_(page.url)
    again.wait_for_selector(".headline")
    assert headline(again) == said
    assert again.input_value("#asked-silos") == "24"
    assert again.input_value("#asked-sync") == "weekly"


def test_a_change_ends_what_is_played_and_begins_anew(open_: Open, asked: str) -> None:
    page = open_(asked)
    page.wait_for_selector("#played svg")
    playing, anew = (lambda request: "/api/simulation" in request.url), re.compile("/api/simulation.*epsilon=3")
    with page.expect_event("requestfailed", playing) as ended, page.expect_request(anew):
        page.fill("#asked-epsilon", "3")
    assert "epsilon=3" not in ended.value.url
    page.wait_for_selector("#played svg")


def test_what_is_wrong_stands_at_its_field(open_: Open, asked: str) -> None:
    page = open_(asked)
    page.wait_for_selector(".headline")
    page.fill("#asked-silos", "none")
    page.get_by_text("must be a whole number, got 'none'").first.wait_for()
    assert page.get_attribute("#asked-silos", "aria-invalid") == "true"
    assert page.locator("#asked-silos-wrong").inner_text() == "must be a whole number, got 'none'"
    page.fill("#asked-silos", "7")
    page.wait_for_selector(".headline")
    assert page.get_attribute("#asked-silos", "aria-invalid") == "false"


def test_what_can_be_taken_away(open_: Open, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbandit.web.planner.copies.TRIALS", 200)
    page = open_(asked, permissions=["clipboard-read", "clipboard-write"])
    page.wait_for_selector(".headline")
    page.click("#toml")
    page.get_by_text("TOML copied.").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert Plan.from_dict(tomllib.loads(copied)).trust == "secure-sum"
    page.click("#python")
    page.get_by_text("Python copied.").wait_for()
    assert "recommended(consortium)" in page.evaluate("navigator.clipboard.readText()")
    page.click("#link")
    page.get_by_text("Link copied.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    with page.expect_download() as download:
        page.click("#certificate")
    download.value.save_as(tmp_path / "certificate.html")
    assert "differentially private" in (tmp_path / "certificate.html").read_text()


def test_another_protocol_is_looked_at_from_the_keyboard(open_: Open, asked: str) -> None:
    page = open_(asked)
    page.wait_for_selector(".headline")
    page.focus("input[type=radio]:checked")
    page.wait_for_selector("#budgets table")  # by now mechanisms are chosen too, and the table is another one
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**use=silo")
    facts = page.locator(".facts").inner_text()
    page.reload()
    page.wait_for_selector("#budgets table")
    assert page.locator("#plans input:checked").get_attribute("value") == "silo"
    assert page.locator(".facts").inner_text() == facts  # they are about what is recommended
    assert page.locator("#sight").inner_text().startswith("Users trust their own silo. All other silos")
    page.focus("#predicted svg[tabindex]")
    page.keyboard.press("ArrowLeft")
    assert re.match(r"day \d+: alone \d+", page.locator("#predicted output").inner_text())
    page.locator("#predicted summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#predicted table tbody tr").count() > 20


def test_colours_go_round_and_are_kept(open_: Open, asked: str) -> None:
    page = open_(asked)
    page.wait_for_selector(".headline")
    ground = "getComputedStyle(document.body).backgroundColor"
    page.click("#theme")
    light = page.evaluate(ground)
    page.click("#theme")
    assert page.locator("#theme").inner_text() == "Colours: dark"
    assert page.evaluate(ground) != light
    page.reload()
    assert page.evaluate(ground) != light
    page.wait_for_selector(".headline")
    page.click("#theme")
    assert page.locator("#theme").inner_text() == "Colours: auto"


# -- a party's page ---------------------------------------------------------------------------------------------------


def entered(open_: Open, server: PageServer, **options: Any) -> Any:
    page = open_(server.url, **options)
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#board:not([hidden])")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("party", ["north", "analyzer", "mixer"])
def test_the_page_of_a_party(
    open_: Open, federation: Federation, pictures: Path | None, party: str, scheme: str
) -> None:
    with running(status_server(federation.folder / party, 0, TOKEN)) as server:
        page = entered(open_, server, scheme=scheme)
        page.get_by_text("All is well.").wait_for()
        assert page.locator("#budget").inner_text().count("not linear") == 1
        assert page.locator("#own").is_visible() == (party == "north")
        if party == "north":
            page.get_by_text("Mean reward of those who count").first.wait_for()
        if party != "mixer":
            shot(page, pictures, f"{'silo' if party == 'north' else party}-{scheme}", full=True)
        well(page)
        assert TOKEN not in page.url


def test_a_sync_arrives_while_somebody_looks(open_: Open, federation: Federation) -> None:
    analyzer = federation.folder / "analyzer"
    with running(status_server(analyzer, 0, TOKEN)) as server:
        page = entered(open_, server)
        before = len(federation.analyzer.store.all())
        page.get_by_text(f"{before} of 60", exact=True).wait_for()
        visit_all(federation, 5, np.random.default_rng(before))
        federation.tick()
        page.get_by_text(f"{before + 1} of 60", exact=True).wait_for()
        assert before >= DONE


def test_a_wrong_token_is_refused_and_another_can_be_tried(open_: Open, federation: Federation) -> None:
    with running(status_server(federation.folder / "north", 0, TOKEN)) as server:
        page = open_(server.url)
        assert page.locator("#board").is_hidden()
        page.fill("#token", "wrong")
        page.click("#enter button")
        page.get_by_text("This is not the party's token.").wait_for()
        well(page)
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("#board:not([hidden])")
        page.reload()
        page.wait_for_selector("#board:not([hidden])")  # this tab remembers
        page.click("#forget")
        page.reload()
        page.wait_for_selector("#door:not([hidden])")
        assert "token" not in page.url


def test_a_federation_that_has_not_begun(open_: Open, tmp_path: Path) -> None:
    homes = founding.local(tmp_path, small_plan(), ["a", "b", "c"], Timing(start=0.0))
    for home in (homes[0], homes[-1]):
        with running(status_server(home.path, 0, TOKEN)) as server:
            page = entered(open_, server)
            page.get_by_text("Nothing has happened yet.").wait_for()
            well(page)


def test_a_hundred_silos(open_: Open, hundred: Path, pictures: Path | None) -> None:
    with running(status_server(hundred, 0, TOKEN)) as server:
        page = entered(open_, server, scheme="light")
        page.get_by_text("silo hospital-017 was not in the last 19 syncs").wait_for()
        page.locator("#line summary").click()
        assert page.locator("#line table tbody tr").count() == 100
        page.locator("#line summary").click()
        assert page.evaluate("document.querySelectorAll('#line svg *').length") < 2_000
        shot(page, pictures, "hundred-silos")
        well(page)
        drawn = float(page.get_attribute("html", "data-drawn"))
        assert drawn < 1_000  # what is promised, 100 ms, is measured on a quiet machine


def test_a_lost_connection_comes_back(open_: Open, federation: Federation) -> None:
    server = status_server(federation.folder / "north", 0, TOKEN)
    port = server.server_address[1]
    with running(server):
        page = entered(open_, server)
        page.get_by_text("● up to date").wait_for()
    page.get_by_text("connection lost").wait_for()
    assert page.locator("#board").is_visible()  # what was known stays
    with running(status_server(federation.folder / "north", port, TOKEN)):
        page.get_by_text("● up to date").wait_for()


def test_a_phone_shows_a_silo(open_: Open, federation: Federation, pictures: Path | None) -> None:
    with running(status_server(federation.folder / "north", 0, TOKEN)) as server:
        page = entered(open_, server, width=360, height=740, scheme="dark")
        page.get_by_text("All is well.").wait_for()
        shot(page, pictures, "silo-phone")
        well(page)


# -- the API's page, a report -----------------------------------------------------------------------------------------


@pytest.fixture
def silo_url(tmp_path: Path) -> Iterator[str]:
    """A silo as it is served, on this machine."""
    import asyncio

    import uvicorn

    from fedbandit.federation.http.app import create_app
    from fedbandit.federation.http.service import Service
    from fedbandit.federation.silo.serving import Silo
    from fedbandit.federation.wire.broker import free_port

    port = free_port()
    with Silo.open(tmp_path / "silo.db", small_plan()) as silo:
        service = Service(silo)
        app = create_app(service, TOKEN)
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", access_log=False))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
        thread.start()
        while not server.started:
            pass
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join()
        service.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_calls_are_tried_on_the_page_that_describes_them(
    open_: Open, silo_url: str, scheme: str, pictures: Path | None
) -> None:
    page = open_(f"{silo_url}/docs", scheme=scheme)
    call = page.locator("section[data-path='/v1/decisions'][data-method=POST]")
    call.locator("summary").click()
    page.fill("#token", TOKEN)
    call.locator("textarea").fill('{"actions": [[1, 0], [0, 1]], "user": "x"}')
    call.get_by_role("button").click()
    call.get_by_text('"propensity"').wait_for()
    if scheme == "light":
        call.scroll_into_view_if_needed()
        shot(page, pictures, "api")
    well(page)


def test_a_running_silo_s_page_counts_while_people_come(open_: Open, silo_url: str) -> None:
    import httpx

    page = open_(silo_url)
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#own:not([hidden])")
    with httpx.Client(base_url=silo_url, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        decision = client.post("/v1/decisions", json={"actions": [[1, 0], [0, 1]]}).json()["id"]
        client.post(f"/v1/decisions/{decision}/reward", json={"reward": 1})
        client.post("/v1/decisions", json={"actions": "blue"})
    page.get_by_text("Delays of rewards").first.wait_for()
    page.get_by_text("422").first.wait_for()
    well(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_stands_alone(open_: Open, tmp_path: Path, scheme: str) -> None:
    line = {"kind": "line", "title": "Over time", "x": "people", "y": "reward", "zero": False}
    names = ("federation", "each silo alone", "<b>")
    series = [{"name": name, "x": [1, 2], "y": [0.1, at], "half": [0.1, 0.1]} for at, name in enumerate(names)]
    rows = [{"name": "uniform", "points": [{"series": "ips", "value": 0.4, "low": 0.3, "high": 0.5}]}]
    logged = {"name": "as logged", "value": 0.45, "low": 0.4, "high": 0.5}
    worth = {"kind": "interval", "title": "Worth", "x": "mean reward", "rows": rows, "reference": logged}
    file = tmp_path / "report.html"
    file.write_text(
        report_page("A report", [ReportPart("Time", "", {**line, "series": series}), ReportPart("Worth", "", worth)])
    )
    page = open_(file.as_uri(), scheme=scheme)
    assert page.locator("svg[role=img]").count() == 2
    assert page.get_by_text("<b>").first.is_visible()
    well(page)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
