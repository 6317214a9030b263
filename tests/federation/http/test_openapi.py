"""The description of the interface, and the page that shows it."""

import json
import re


def test_the_description_covers_every_path(http):
    description = http.get("/openapi.json").json()
    assert set(description["paths"]) == {
        "/v1/decisions", "/v1/decisions/batch", "/v1/decisions/{decision}/reward", "/v1/rewards",
        "/v1/action-sets/{name}", "/v1/action-sets", "/v1/model", "/v1/status", "/healthz", "/readyz", "/metrics",
    }  # fmt: skip
    text = json.dumps(description)
    for reference in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert reference in description["components"]["schemas"]


def test_everything_is_described_in_words(http):
    description = http.get("/openapi.json").json()
    for calls in description["paths"].values():
        for call in calls.values():
            assert call["summary"].endswith(".")
    for schema in description["components"]["schemas"].values():
        assert schema["description"].endswith(".")


def test_the_description_says_who_needs_the_token_and_what_may_be_refused(http):
    paths = http.get("/openapi.json").json()["paths"]
    assert [path for path, calls in paths.items() if calls.get("get", {}).get("security") == []] == [
        "/healthz",
        "/readyz",
    ]
    reward = paths["/v1/decisions/{decision}/reward"]["post"]
    assert set(reward["responses"]) == {"200", "401", "404", "409", "410", "413", "422", "503"}
    assert reward["parameters"][0]["schema"]["maxLength"] == 16384
    ready = paths["/readyz"]["get"]["responses"]
    assert ready["503"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/NotReady"}


def test_the_page_shows_every_call_and_loads_nothing_from_elsewhere(http):
    page = http.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for path in http.get("/openapi.json").json()["paths"]:
        assert path in page.text
    assert page.text.count("<script") == 1
    assert "style=" not in page.text
    assert "<style" not in page.text
    links = set(re.findall(r'(?:href|src)="([^"]*)"', page.text))
    anchors = {f"#{name}" for name in re.findall(r'id="([^"]*)"', page.text)}
    own = {"/assets/api.js", "/assets/style.css"}
    assert links - anchors == {"openapi.json", "data:,", *own}
    assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
    assert {http.request("GET", path, headers={"Authorization": ""}).status_code for path in own} == {200}
