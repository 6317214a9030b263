"""What goes in and comes out, as OpenAPI describes it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedbandit.federation.actions import MAX_ARMS

MAX_BATCH = 1000
Number = Annotated[float, Field(allow_inf_nan=False)]
Actions = Annotated[list[list[Number]], Field(min_length=1, max_length=MAX_ARMS)]
UserKey = Annotated[str, Field(min_length=1, max_length=256)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", min_length=1, max_length=40)]


class Strict(BaseModel):
    """Nothing is guessed: unknown fields and numbers in quotes are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DecisionRequest(Strict):
    """Actions to choose among: features sent here, or a registered set; of these, only the allowed ones."""

    actions: Actions | None = Field(None, description="One row of features for each action, of norm at most 1.")
    action_set: Name | None = Field(None, description="The name of a registered action set, instead of `actions`.")
    allowed: Annotated[list[int], Field(min_length=1, max_length=MAX_ARMS)] | None = Field(
        None, description="Indices of the actions that may be chosen; all of them by default."
    )
    user: UserKey | None = Field(
        None,
        description="The application's key of the person; kept as a salted hash for the participation cap.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> DecisionRequest:
        if (self.actions is None) == (self.action_set is None):
            raise ValueError("exactly one of actions and action_set must be given")
        return self


class DecisionBatch(Strict):
    decisions: Annotated[list[DecisionRequest], Field(min_length=1, max_length=MAX_BATCH)]


class DecisionAnswer(BaseModel):
    id: str = Field(description="Reward the decision with this.")
    action: int = Field(description="Index of the action chosen.")
    model: int = Field(description="Rounds that the deciding model has learnt from.")


class DecisionAnswers(BaseModel):
    decisions: list[DecisionAnswer]


class RewardRequest(Strict):
    reward: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class NamedReward(RewardRequest):
    decision: Annotated[str, Field(min_length=1, max_length=16384)]


class RewardBatch(Strict):
    rewards: Annotated[list[NamedReward], Field(min_length=1, max_length=MAX_BATCH)]


class RewardAnswer(BaseModel):
    counted: bool = Field(description="False if the person has reached the participation cap.")
    batch: int = Field(description="The batch it counts in, from 0.")
    repeated: bool = Field(description="True if this very reward had been acknowledged before.")


class Problem(BaseModel):
    field: str
    message: str


class Problems(BaseModel):
    """What was wrong, and with which field."""

    errors: list[Problem]


class RewardResult(BaseModel):
    """One reward of a batch: its answer, or why there is none."""

    status: Literal[200, 404, 409, 410]
    answer: RewardAnswer | None = None
    error: Problem | None = None


class RewardResults(BaseModel):
    rewards: list[RewardResult]


class ActionSetRequest(Strict):
    actions: Actions


class ActionSets(BaseModel):
    action_sets: dict[str, int] = Field(description="Name to number of actions.")


class ModelAnswer(BaseModel):
    version: int = Field(description="Rounds it has learnt from.")
    plan: str
    dim: int
    theta: list[float]


class Health(BaseModel):
    status: Literal["ok"]
    term: Literal["running", "ended"]


class Readiness(BaseModel):
    ready: bool
    connected: bool = Field(description="Whether the broker can be reached; decisions do not need it.")
    problem: str | None = None


class Status(BaseModel):
    """Public numbers of the term; more may be added."""

    model_config = ConfigDict(extra="allow")
    silo: str
    term: int
    decisions: int
    released: int
    steps: int
    model: int
    ended: bool
