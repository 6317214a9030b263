"""The HTTP interface of a silo: its routes, and their description. Every bad input is a 4xx that names the field."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from fedbandit.federation.http import schemas
from fedbandit.federation.http.fast import FastPath
from fedbandit.federation.http.guard import Guard
from fedbandit.federation.http.refusals import CAUGHT, refusal
from fedbandit.federation.http.service import Service

Handler = Callable[[Request], Awaitable[Response]]
PATH_LENGTH = {"decision": 16384, "name": 40}
PROBLEMS = (401, 404, 409, 410, 413, 422, 503)


def create_app(service: Service, token: str) -> ASGIApp:
    """The ASGI application of a silo: the guard first, then the two calls of every user, then everything else."""
    return Guard(FastPath(_described_app(service), service), token)


def _described_app(service: Service) -> FastAPI:
    """All routes and their description."""
    app = FastAPI(title="fedbandit silo", version="1", description="Decisions and rewards of one silo.")
    asked: dict[str, type[BaseModel]] = {}
    for method, path, handler, answer, asks in _routes(service):
        app.add_api_route(
            path,
            handler,
            methods=[method],
            responses={200: {"model": answer} if answer else {}, **{c: {"model": schemas.Problems} for c in PROBLEMS}},
            openapi_extra=_described(path, asks),
            response_model=None,
        )
        if asks is not None:
            asked[asks.__name__] = asks
    _describe(app, asked)
    for kind in CAUGHT:
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(HTTPException, _plain)
    return app


Route = tuple[str, str, Handler, type[BaseModel] | None, type[BaseModel] | None]


def _routes(service: Service) -> list[Route]:
    """Method, path, handler, answer and body of every call."""

    async def decide(request: Request) -> Response:
        """Choose one of the actions."""
        return _json(await service.decide(await request.body()))

    async def reward(request: Request) -> Response:
        """Reward a decision, once; on disk when this answers. The same reward again is acknowledged again."""
        return _json(await service.reward(request.path_params["decision"], await request.body()))

    async def decide_batch(request: Request) -> Response:
        """Several decisions at once: all or, if one of them is wrong, none."""
        return JSONResponse(await service.decide_batch(await request.body()))

    async def reward_batch(request: Request) -> Response:
        """Several rewards in one transaction; each has its own answer."""
        return JSONResponse(await service.reward_batch(await request.body()))

    async def register(request: Request) -> Response:
        """Register an action set under a name, for good."""
        return JSONResponse(await service.register(request.path_params["name"], await request.body()))

    async def action_sets(request: Request) -> Response:
        """The registered action sets."""
        return JSONResponse(service.action_sets())

    async def model(request: Request) -> Response:
        """The model that decides now; it is public within the federation."""
        return JSONResponse(service.model())

    async def status(request: Request) -> Response:
        """Where the term stands."""
        return JSONResponse(await asyncio.to_thread(service.silo.status))

    async def healthz(request: Request) -> Response:
        """Alive; and whether the term still runs."""
        return JSONResponse(service.health())

    async def readyz(request: Request) -> Response:
        """Whether decisions and rewards can be taken now."""
        found = await service.readiness()
        return JSONResponse(found, status_code=200 if found["ready"] else 503)

    async def metrics(request: Request) -> Response:
        """Metrics for Prometheus."""
        page = await asyncio.to_thread(service.metrics.page, service.silo)
        return Response(page, media_type="text/plain; version=0.0.4")

    s = schemas
    return [
        ("POST", "/v1/decisions", decide, s.DecisionAnswer, s.DecisionRequest),
        ("POST", "/v1/decisions/batch", decide_batch, s.DecisionAnswers, s.DecisionBatch),
        ("POST", "/v1/decisions/{decision}/reward", reward, s.RewardAnswer, s.RewardRequest),
        ("POST", "/v1/rewards", reward_batch, s.RewardResults, s.RewardBatch),
        ("PUT", "/v1/action-sets/{name}", register, s.ActionSets, s.ActionSetRequest),
        ("GET", "/v1/action-sets", action_sets, s.ActionSets, None),
        ("GET", "/v1/model", model, s.ModelAnswer, None),
        ("GET", "/v1/status", status, s.Status, None),
        ("GET", "/healthz", healthz, s.Health, None),
        ("GET", "/readyz", readyz, s.Readiness, None),
        ("GET", "/metrics", metrics, None, None),
    ]


def _described(path: str, asks: type[BaseModel] | None) -> dict[str, Any]:
    """Parameters and body of a route for OpenAPI: handlers read them themselves, which is faster."""
    extra: dict[str, Any] = {}
    for name, length in PATH_LENGTH.items():
        if f"{{{name}}}" in path:
            schema = {"type": "string", "minLength": 1, "maxLength": length}
            extra["parameters"] = [{"name": name, "in": "path", "required": True, "schema": schema}]
    if asks is not None:
        reference = {"$ref": f"#/components/schemas/{asks.__name__}"}
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
    return extra


def _describe(app: FastAPI, asked: dict[str, type[BaseModel]]) -> None:
    """Put the schemas of the bodies and the token into the OpenAPI description."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        description = generate()
        components = description.setdefault("components", {}).setdefault("schemas", {})
        for name, schema in asked.items():
            body = schema.model_json_schema(ref_template="#/components/schemas/{model}")
            components.update(body.pop("$defs", {}))
            components[name] = body
        description["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        description["security"] = [{"token": []}]
        return description

    app.openapi = openapi  # type: ignore[method-assign]


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    status, problems = refusal(error)
    return JSONResponse({"errors": problems}, status_code=status)


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = {"field": "path", "message": str(error.detail)}
    return JSONResponse({"errors": [problem]}, status_code=error.status_code)
