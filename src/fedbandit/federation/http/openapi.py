"""The description of the interface, made from the table of routes: an OpenAPI 3.1 document, and a page to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from http import HTTPStatus
from typing import Any

import msgspec

from fedbandit.federation.http.bodies.parsing import PACKED_MEDIA
from fedbandit.federation.http.routes import JSON_MEDIA, Route
from fedbandit.federation.http.schemas import Answer, Problems

__all__ = ["document", "page"]

Schema = dict[str, Any]
KEY = {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"}
_COMPONENTS = "#/components/schemas/"


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    used = (kind for route in routes for kind in (route.body, Problems, route.problems, *route.answers))
    ordered = sorted({kind for kind in used if kind not in (None, bytes)}, key=lambda kind: str(kind))
    references, components = msgspec.json.schema_components(ordered, ref_template=f"{_COMPONENTS}{{name}}")
    known = {bytes: {"type": "string"}, **dict(zip(ordered, references, strict=True))}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "fedbandit silo", "version": "1", "description": "Decisions and rewards of one silo."},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}, "key": KEY},
        },
        "security": [{"token": []}, {"key": []}],
    }


def _operation(route: Route, known: dict[Any, Schema]) -> dict[str, Any]:
    refused = {status: _response(status, JSON_MEDIA, known[_told(route, status)]) for status in route.refuses}
    answered = {_status(kind): _response(_status(kind), route.media, known[kind]) for kind in route.answers}
    operation: dict[str, Any] = {
        "operationId": route.call.__name__,
        "summary": route.call.__doc__,
        "responses": {str(status): response for status, response in sorted((refused | answered).items())},
    }
    if route.parameters:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": msgspec.json.schema(kind)}
            for name, kind in route.parameters.items()
        ]
    if route.body is not None:
        content = {media: {"schema": known[route.body]} for media in (JSON_MEDIA, PACKED_MEDIA)}
        operation["requestBody"] = {"required": True, "content": content}
    if not route.token:
        operation["security"] = []
    return operation


def _status(kind: type[Answer] | type[bytes]) -> int:
    return kind.STATUS if issubclass(kind, Answer) else 200


def _told(route: Route, status: int) -> Any:
    """The type of a refusal's body; without a token it does not depend on the route."""
    return Problems if status == 401 else route.problems


def _response(status: int, media: str, schema: Schema) -> dict[str, Any]:
    if status == 204:
        return {"description": HTTPStatus(status).phrase}
    return {"description": HTTPStatus(status).phrase, "content": {media: {"schema": schema}}}


# -- the page ---------------------------------------------------------------------------------------------------------


def page(description: dict[str, Any]) -> str:
    """An OpenAPI document as an HTML page; a script on the page lets readers try the calls."""
    info = description["info"]
    return "\n".join([
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<title>{escape(info["title"])}</title><link rel="icon" href="data:,">',
        '<link rel="stylesheet" href="/assets/style.css">',
        '<script type="module" src="/assets/api.js"></script></head><body>',
        f'<header><h1>{escape(info["title"])}</h1><nav class="row" aria-label="Page" id="tools"></nav></header><main>',
        f'<p>{escape(info["description"])} The same for machines:',
        '<a href="openapi.json">openapi.json</a>. Every call but those marked "open" needs the header',
        "<code>Authorization: Bearer</code> with the silo's token. Bodies are JSON, or MessagePack with the same",
        f"fields if the header <code>Content-Type: {PACKED_MEDIA}</code> says so; answers are JSON.</p>",
        *(_call(path, method, call) for path, calls in description["paths"].items() for method, call in calls.items()),
        "<h2>What goes in and out</h2>",
        *(_component(name, schema) for name, schema in description["components"]["schemas"].items()),
        "</main></body></html>",
    ])  # fmt: skip


def _call(path: str, method: str, call: dict[str, Any]) -> str:
    rows = [("body", call["requestBody"])] if "requestBody" in call else []
    rows += list(call["responses"].items())
    open_to_all = " (open)" if call.get("security") == [] else ""
    cells = [f"<tr><td>{name}<td>{_content(part)}<td>{escape(part.get('description', ''))}" for name, part in rows]
    summary = escape(call["summary"])
    named = f'data-method="{method.upper()}" data-path="{escape(path)}"'
    return (
        f"<section {named}><h2><code>{method.upper()} {escape(path)}</code>{open_to_all}</h2><p>{summary}</p>"
        f"<table>{''.join(cells)}</table></section>"
    )


def _content(part: dict[str, Any]) -> str:
    return ", ".join(dict.fromkeys(_kind(content["schema"]) for content in part.get("content", {}).values()))


def _component(name: str, schema: Schema) -> str:
    rows = [
        f"<tr><td>{escape(field)}<td>{_kind(kind)}<td>{escape(kind.get('description', ''))}"
        for field, kind in schema["properties"].items()
    ]
    described = f"<p>{escape(schema['description'])}</p><table>{''.join(rows)}</table>"
    return f'<section><h3 id="{name}">{name}</h3>{described}</section>'


def _kind(schema: Schema) -> str:
    """A schema in words, with links to the parts that have a name."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_COMPONENTS)
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if schema["type"] == "array":
        return f"array of {_kind(schema['items'])}"
    if "contentEncoding" in schema:
        return f"bytes, in JSON as {schema['contentEncoding']}"
    return ", ".join([schema["type"], *_limits(schema)])


def _limits(schema: Schema) -> Iterator[str]:
    words = {"minimum": "at least", "maximum": "at most", "exclusiveMaximum": "below", "maxLength": "length at most"}
    for key, word in words.items():
        if key in schema:
            yield f"{word} {schema[key]}"
