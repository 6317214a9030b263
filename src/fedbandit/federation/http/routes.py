"""The table of routes: every method and path that is served, and the call that answers it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Struct

from fedbandit.federation.http.bodies.parsing import Parser
from fedbandit.federation.http.families import METRICS_MEDIA
from fedbandit.federation.http.personalizer import Personalizer, PersonalizerProblems
from fedbandit.federation.http.refusals import bad_argument
from fedbandit.federation.http.schemas import Answer, Problems
from fedbandit.federation.http.service import Service
from fedbandit.look import page_files

__all__ = ["JSON_MEDIA", "Route", "Router", "page_route", "page_routes", "service_routes"]

JSON_MEDIA = "application/json"
Methods = dict[str, "Route"]
BOARD, PAGE = "/v1/board", "operations.html"
FILES = ("operations.js", "api.js", "parts.js", "chart.js", "style.css", "colours.css")


class Route:
    """A method and a path, and the call that answers them.

    The signature of the call says the rest: a parameter that the path names in braces comes from the path, the other
    one is the body, and the return value is the answer (`bytes` if it is not JSON). `refuses` are the statuses of
    refusals in addition to those that follow from the signature. `token` is False if anybody may ask. `at_once` is the
    same call for requests that need no waiting; it returns None for those that do. `problems` is the type of a
    refusal's body. `headers` go with every answer. A `tagged` answer is not sent again to a caller who already has it.
    """

    def __init__(
        self,
        method: str,
        path: str,
        call: Callable[..., Awaitable[Answer | bytes]],
        *,
        at_once: Callable[..., Answer | None] | None = None,
        refuses: Sequence[int] = (),
        token: bool = True,
        media: str = JSON_MEDIA,
        problems: type[Problems] | type[PersonalizerProblems] = Problems,
        headers: Mapping[str, str] = MappingProxyType({}),
        tagged: bool = False,
    ) -> None:
        self.method, self.path, self.call, self.token, self.media = method, path, call, token, media
        self.headers, self.tagged = [(name.encode(), value.encode()) for name, value in headers.items()], tagged
        self.at_once, self.problems = at_once, problems
        hints = get_type_hints(call, include_extras=True)
        answer = hints.pop("return")
        self.answers: tuple[type[Answer] | type[bytes], ...] = get_args(answer) or (answer,)
        self.parameters: dict[str, Any] = {name: hints.pop(name) for name in re.findall(r"{(\w+)}", path)}
        self.body: type[Struct] | None = next(iter(hints.values()), None)
        self._parser = Parser(self.body or Struct)
        self.refuses = {*refuses, *self._usual_refusals()}

    async def answer(self, given: dict[str, str], media: bytes, body: bytes | bytearray) -> Answer | bytes:
        """Check the request, and make the call."""
        arguments: list[Any] = [self._parameter(name, value) for name, value in given.items()]
        if self.body is not None:
            arguments.append(self._parser.read(media, body))
        return await self.call(*arguments)

    def answer_at_once(self, media: bytes, body: bytes) -> Answer | None:
        """The same without waiting; None if it has to wait."""
        return None if self.at_once is None else self.at_once(self._parser.read(media, body))

    def _parameter(self, name: str, value: str) -> str:
        try:
            return str(msgspec.convert(value, self.parameters[name]))
        except msgspec.ValidationError as error:
            raise bad_argument(error, whole=name) from None

    def _usual_refusals(self) -> set[int]:
        token = {401} if self.token else set()
        parameters = {404, 422} if self.parameters else set()
        return token | parameters | ({413, 422} if self.body else set())


class Router:
    """Finds the routes of a path. Paths without a parameter come before those with one."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._exact: dict[str, Methods] = {}
        self._patterns: dict[re.Pattern[str], Methods] = {}
        for route in routes:
            if route.parameters:
                pattern = re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", route.path))
                self._patterns.setdefault(pattern, {})[route.method] = route
            else:
                self._exact.setdefault(route.path, {})[route.method] = route

    def find(self, path: str) -> tuple[Methods, dict[str, str]]:
        """The routes of a path by method (empty if there is no such path), and the path's parameters."""
        if path in self._exact:
            return self._exact[path], {}
        for pattern, methods in self._patterns.items():
            found = pattern.fullmatch(path)
            if found:
                return methods, found.groupdict()
        return {}, {}


def service_routes(service: Service) -> list[Route]:
    """The routes of a silo."""
    personalizer = [] if service.personalizer is None else _personalizer_routes(service.personalizer)
    return [
        Route("POST", "/v1/decisions", service.decide, at_once=service.decide_at_once, refuses=[503]),
        Route("POST", "/v1/decisions/batch", service.decide_batch, refuses=[503]),
        Route("POST", "/v1/decisions/{decision}/reward", service.reward, refuses=[409, 410, 503]),
        Route("POST", "/v1/rewards", service.reward_batch, refuses=[503]),
        Route("PUT", "/v1/action-sets/{name}", service.register, refuses=[503]),
        Route("GET", "/v1/action-sets", service.action_sets),
        Route("GET", "/v1/model", service.model),
        Route("GET", "/v1/status", service.status, refuses=[503]),
        Route("GET", "/healthz", service.health, token=False),
        Route("GET", "/readyz", service.readiness, token=False),
        Route("GET", "/metrics", service.metrics, media=METRICS_MEDIA),
        *personalizer,
    ]


def page_routes(board: Callable[[], Awaitable[bytes]]) -> list[Route]:
    """The routes of a party's page, which anybody may load, and of its data, which need the token."""
    shown = {"/": PAGE, **{f"{page_files.ASSETS}{name}": name for name in FILES}}
    data = Route("GET", BOARD, board, media=JSON_MEDIA, headers=page_files.HEADERS, tagged=True)
    return [data, *(page_route(path, name) for path, name in shown.items())]


def page_route(path: str, name: str) -> Route:
    """The route of one of the page's files."""
    found = page_files.asset(name)
    assert found is not None

    async def file() -> bytes:
        return found.body

    return Route("GET", path, file, token=False, media=found.media, headers=page_files.HEADERS, tagged=True)


def _personalizer_routes(calls: Personalizer) -> list[Route]:
    def route(path: str, call: Callable[..., Awaitable[Answer]], *refuses: int) -> Route:
        return Route("POST", f"/personalizer/v1.0/{path}", call, refuses=refuses, problems=PersonalizerProblems)

    return [
        route("rank", calls.rank, 503),
        route("events/{event_id}/reward", calls.reward_event, 410, 503),
        route("events/{event_id}/activate", calls.activate_event, 410, 503),
    ]
