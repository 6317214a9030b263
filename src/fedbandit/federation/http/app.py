"""The HTTP interface of a silo. Every bad input is a 4xx that names the field."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException

from fedbandit.federation.http import schemas
from fedbandit.federation.http.group import GroupCommit, StoreUnavailable
from fedbandit.federation.http.guard import BodyTooLarge, Guard
from fedbandit.federation.http.metrics import Metrics
from fedbandit.federation.silo import (
    Decision,
    RewardConflict,
    Silo,
    TermEnded,
    UnknownDecision,
    acknowledged,
)
from fedbandit.federation.store import Reward, Verdict

Schema = TypeVar("Schema", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Response]]


class Service:
    """The handlers of one silo. `connected` and `problem` report on its link to the federation."""

    def __init__(self, silo: Silo) -> None:
        self.silo = silo
        self.group, self.metrics = GroupCommit(silo), Metrics()
        self.connected: Callable[[], bool] = lambda: False
        self.problem: Callable[[], str | None] = lambda: None

    async def decide(self, request: Request) -> Response:
        """Choose one of the actions."""
        asked = schemas.DecisionRequest.model_validate_json(await request.body())
        decision = self._decide(asked)
        self.metrics.decisions.inc()
        return _json(f'{{"id":"{decision.id}","action":{decision.action},"model":{decision.model}}}')

    async def decide_batch(self, request: Request) -> Response:
        """Several decisions at once: all or, if one of them is wrong, none."""
        asked = schemas.DecisionBatch.model_validate_json(await request.body())
        decisions = []
        for number, one in enumerate(asked.decisions):
            try:
                decisions.append(self._decide(one))
            except (ValueError, LookupError) as error:
                raise _refusal(422, f"decisions.{number}", error) from None
        self.metrics.decisions.inc(len(decisions))
        return JSONResponse({"decisions": [decision._asdict() for decision in decisions]})

    async def reward(self, request: Request) -> Response:
        """Reward a decision, once; on disk when this answers. The same reward again is acknowledged again."""
        asked = schemas.RewardRequest.model_validate_json(await request.body())
        reward = self.silo.read(request.path_params["decision"], asked.reward)
        began = time.perf_counter()
        (verdict,) = await self.group.put([reward])
        self.metrics.commit.observe(time.perf_counter() - began)
        self.metrics.rewarded(verdict)
        answer = acknowledged(verdict)
        counted, repeated = str(answer.counted).lower(), str(answer.repeated).lower()
        return _json(f'{{"counted":{counted},"batch":{answer.batch},"repeated":{repeated}}}')

    async def reward_batch(self, request: Request) -> Response:
        """Several rewards in one transaction; each has its own answer."""
        asked = schemas.RewardBatch.model_validate_json(await request.body())
        opened = [self._open(one) for one in asked.rewards]
        verdicts = iter(await self.group.put([one for one in opened if isinstance(one, Reward)]))
        results = [_result(next(verdicts)) if isinstance(one, Reward) else one for one in opened]
        return JSONResponse({"rewards": results})

    async def register(self, request: Request) -> Response:
        """Register an action set under a name, for good."""
        asked = schemas.ActionSetRequest.model_validate_json(await request.body())
        await asyncio.to_thread(self.silo.register, request.path_params["name"], asked.actions)
        return await self.action_sets(request)

    async def action_sets(self, request: Request) -> Response:
        """The registered action sets."""
        return JSONResponse({"action_sets": self.silo.action_sets()})

    async def model(self, request: Request) -> Response:
        """The model that decides now; it is public within the federation."""
        version, theta = self.silo.model()
        plan = self.silo.plan
        return JSONResponse({"version": version, "plan": plan.hash, "dim": plan.dim, "theta": theta})

    async def status(self, request: Request) -> Response:
        """Where the term stands."""
        return JSONResponse(await asyncio.to_thread(self.silo.status))

    async def health(self, request: Request) -> Response:
        """Alive; and whether the term still runs."""
        return JSONResponse({"status": "ok", "term": "ended" if self.silo.ended else "running"})

    async def ready(self, request: Request) -> Response:
        """Whether decisions and rewards can be taken now."""
        problem = self.problem()
        try:
            await self.group.put([])
        except StoreUnavailable as error:
            problem = str(error)
        body = {"ready": problem is None, "connected": self.connected(), "problem": problem}
        return JSONResponse(body, status_code=200 if problem is None else 503)

    async def prometheus(self, request: Request) -> Response:
        """Metrics for Prometheus."""
        page = await asyncio.to_thread(self.metrics.page, self.silo)
        return Response(page, media_type="text/plain; version=0.0.4")

    def _decide(self, asked: schemas.DecisionRequest) -> Decision:
        actions = asked.actions if asked.action_set is None else asked.action_set
        assert actions is not None
        return self.silo.decide(actions, user=asked.user, allowed=asked.allowed)

    def _open(self, one: schemas.NamedReward) -> Reward | dict[str, Any]:
        try:
            return self.silo.read(one.decision, one.reward)
        except UnknownDecision as error:
            return {"status": 404, "error": {"field": "decision", "message": str(error)}}


def create_app(service: Service, token: str) -> FastAPI:
    """The ASGI application of a silo."""
    app = FastAPI(title="fedbandit silo", version="1", description="Decisions and rewards of one silo.")
    _routes(app, service)
    app.add_exception_handler(ValidationError, _invalid)
    for kind, status, field in (
        (UnknownDecision, 404, "decision"),
        (RewardConflict, 409, "reward"),
        (TermEnded, 410, "decision"),
        (LookupError, 422, "action_set"),
        (ValueError, 422, None),
        (StoreUnavailable, 503, "store"),
        (BodyTooLarge, 413, "body"),
    ):
        app.add_exception_handler(kind, _answers(status, field))
    app.add_exception_handler(AnyHTTPException, _plain)
    app.add_middleware(Guard, token=token)
    return app


def _routes(app: FastAPI, service: Service) -> None:
    s = schemas
    bad: dict[int | str, dict[str, Any]] = {
        code: {"model": s.Problems} for code in (400, 401, 404, 409, 410, 413, 422, 503)
    }

    def add(method: str, path: str, handler: Handler, answer: type[BaseModel] | None, asks: Any = None) -> None:
        extra: dict[str, Any] = {}
        if "{decision}" in path or "{name}" in path:
            name = "decision" if "{decision}" in path else "name"
            schema = {"type": "string", "minLength": 1, "maxLength": 16384 if name == "decision" else 40}
            extra["parameters"] = [{"name": name, "in": "path", "required": True, "schema": schema}]
        if asks is not None:
            reference = {"$ref": f"#/components/schemas/{asks.__name__}"}
            extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
            _asked[asks.__name__] = asks
        app.add_api_route(
            path,
            handler,
            methods=[method],
            responses={200: {"model": answer} if answer else {}, **bad},
            openapi_extra=extra,
            response_model=None,
        )

    _asked: dict[str, type[BaseModel]] = {}
    add("POST", "/v1/decisions", service.decide, s.DecisionAnswer, s.DecisionRequest)
    add("POST", "/v1/decisions/batch", service.decide_batch, s.DecisionAnswers, s.DecisionBatch)
    add("POST", "/v1/decisions/{decision}/reward", service.reward, s.RewardAnswer, s.RewardRequest)
    add("POST", "/v1/rewards", service.reward_batch, s.RewardResults, s.RewardBatch)
    add("PUT", "/v1/action-sets/{name}", service.register, s.ActionSets, s.ActionSetRequest)
    add("GET", "/v1/action-sets", service.action_sets, s.ActionSets)
    add("GET", "/v1/model", service.model, s.ModelAnswer)
    add("GET", "/v1/status", service.status, s.Status)
    add("GET", "/healthz", service.health, s.Health)
    add("GET", "/readyz", service.ready, s.Readiness)
    add("GET", "/metrics", service.prometheus, None)
    _describe(app, _asked)


def _describe(app: FastAPI, asked: dict[str, type[BaseModel]]) -> None:
    """Put the request bodies into the OpenAPI description: handlers read them themselves, which is faster."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        description = generate()
        components = description.setdefault("components", {}).setdefault("schemas", {})
        for name, schema in asked.items():
            body = schema.model_json_schema(ref_template="#/components/schemas/{model}")
            components.update(body.pop("$defs", {}))
            components[name] = body
        security = {"token": {"type": "http", "scheme": "bearer"}}
        description["components"]["securitySchemes"] = security
        description["security"] = [{"token": []}]
        return description

    app.openapi = openapi  # type: ignore[method-assign]


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")


def _result(verdict: Verdict) -> dict[str, Any]:
    try:
        return {"status": 200, "answer": acknowledged(verdict)._asdict()}
    except RewardConflict as error:
        return {"status": 409, "error": {"field": "reward", "message": str(error)}}
    except TermEnded as error:
        return {"status": 410, "error": {"field": "decision", "message": str(error)}}


def _problem(status: int, field: str, message: str) -> JSONResponse:
    return JSONResponse({"errors": [{"field": field, "message": message}]}, status_code=status)


def _refusal(status: int, field: str, error: Exception) -> HTTPException:
    return HTTPException(status, {"errors": [{"field": field, "message": str(error)}]})


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, ValidationError)
    found = [
        {"field": ".".join(str(part) for part in one["loc"]) or "body", "message": one["msg"]}
        for one in error.errors(include_url=False, include_input=False, include_context=False)[:20]
    ]
    return JSONResponse({"errors": found}, status_code=422)


def _answers(status: int, field: str | None) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        message = str(error)
        return _problem(status, field or message.split(" ", 1)[0], message)

    return answer


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    if isinstance(error.detail, dict):
        return JSONResponse(error.detail, status_code=error.status_code)
    return _problem(error.status_code, "path", str(error.detail))
