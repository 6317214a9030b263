"""The types of requests and answers: requests are checked against them, and OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from fedbandit.federation.silo.decisions.actions import MAX_ARMS

__all__ = [
    "ActionRequest",
    "ActionSetRequest",
    "ActionSets",
    "Answer",
    "Body",
    "DecisionAnswer",
    "DecisionAnswers",
    "DecisionBatch",
    "DecisionId",
    "DecisionRequest",
    "Health",
    "ModelAnswer",
    "Name",
    "NamedReward",
    "NotReady",
    "Problem",
    "Problems",
    "Readiness",
    "RewardAnswer",
    "RewardBatch",
    "RewardRequest",
    "RewardResult",
    "RewardResults",
    "SiloStatus",
]

MAX_BATCH = 1000

# Rows of numbers, or the same as bytes: rows of float32, little-endian, one after another.
Rows = Annotated[list[list[float]], Meta(min_length=1, max_length=MAX_ARMS)] | bytes
ROWS = (
    "One row of features per action, each of Euclidean norm at most 1: numbers, or the bytes of little-endian float32"
    " numbers, row after row (base64 in JSON, binary in MessagePack)."
)
Index = Annotated[int, Meta(ge=0, lt=MAX_ARMS)]
Name = Annotated[str, Meta(min_length=1, max_length=40, pattern="^[A-Za-z0-9_-]+$")]
DecisionId = Annotated[str, Meta(min_length=1, max_length=16384)]
ActionName = Annotated[str, Meta(min_length=1, max_length=256)]
UserKey = Annotated[str, Meta(min_length=1, max_length=256)]


class Body(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request. Nothing is guessed: unknown fields and numbers in quotes are refused."""


class Answer(Struct, frozen=True):
    """The body of an answer, and its status."""

    STATUS: ClassVar[int] = 200


class ActionRequest(Body, frozen=True):
    """An action to choose from, with its features as the plan's schema describes them."""

    id: ActionName
    features: Annotated[dict[str, Any], Meta(description="Values by the name of a field.")] = {}


class DecisionRequest(Body, frozen=True):
    """What to choose from: `actions`, an `action_set`, or what the plan's schema makes of a `context`; only the
    `allowed` ones may be chosen."""

    actions: Annotated[
        Annotated[list[list[float] | ActionRequest | ActionName], Meta(min_length=1, max_length=MAX_ARMS)]
        | bytes
        | None,
        Meta(description=f"{ROWS} With a `context`: actions with their features, or names of the schema's actions."),
    ] = None
    action_set: Annotated[
        Name | None, Meta(description="The name of a registered action set, instead of `actions`.")
    ] = None
    context: Annotated[
        dict[str, Any] | None,
        Meta(
            description="Fields of the person or the moment, for a plan with a schema. Fields that the schema does not "
            "have are ignored; values outside its ranges are clamped."
        ),
    ] = None
    allowed: Annotated[
        Annotated[list[Index | ActionName], Meta(min_length=1, max_length=MAX_ARMS)] | None,
        Meta(description="Indices, from 0, or ids of the actions that may be chosen; by default all of them."),
    ] = None
    user: Annotated[
        UserKey | None,
        Meta(description="The application's key for the person, for the participation cap; kept as a salted hash."),
    ] = None
    chosen: Annotated[
        Index | ActionName | None,
        Meta(description="The index or id of the action that the application chose itself, if the plan allows it."),
    ] = None
    propensity: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        Meta(description="With `chosen`: the probability with which the application chose it, if it knows."),
    ] = None
    shared: Annotated[
        bool,
        Meta(description="False: the person opts out, and none of their data leave the silo from now on in this term."),
    ] = True

    def __post_init__(self) -> None:
        if self.context is None and (self.actions is None) == (self.action_set is None):
            raise ValueError("exactly one of `actions` and `action_set` must be given, or a `context`")
        if self.context is not None and (self.action_set is not None or isinstance(self.actions, bytes)):
            raise ValueError("with a `context`, actions must be a list of names or tables, or left out")


class DecisionBatch(Body, frozen=True):
    """Several requests for a decision."""

    decisions: Annotated[list[DecisionRequest], Meta(min_length=1, max_length=MAX_BATCH)]


class DecisionAnswer(Answer, frozen=True):
    """A decision."""

    id: Annotated[str, Meta(description="Names the decision when its reward is reported.")]
    action: Annotated[int, Meta(description="The index, from 0, of the chosen action.")]
    model: Annotated[int, Meta(description="How many syncs the model that decided has learnt from.")]
    propensity: Annotated[
        float | None,
        Meta(description="The probability with which the action was chosen; null if the application chose it."),
    ]
    name: Annotated[str | None, Meta(description="The id of the chosen action; null if actions are rows.")] = None


class DecisionAnswers(Answer, frozen=True):
    """One decision per request, in the same order."""

    decisions: list[DecisionAnswer]


class RewardRequest(Body, frozen=True):
    """The reward of a decision."""

    reward: Annotated[float, Meta(ge=0, le=1)]


class NamedReward(RewardRequest, frozen=True):
    """A reward, and the decision that it is for."""

    decision: DecisionId


class RewardBatch(Body, frozen=True):
    """Several rewards."""

    rewards: Annotated[list[NamedReward], Meta(min_length=1, max_length=MAX_BATCH)]


class RewardAnswer(Answer, frozen=True):
    """A reward that is on disk."""

    counted: Annotated[
        bool,
        Meta(
            description="False if the person has opted out, came too often or too soon, or the decision's batch is"
            " closed."
        ),
    ]
    batch: Annotated[int, Meta(description="The batch that the reward counts in, from 0.")]
    repeated: Annotated[bool, Meta(description="True if the same reward was acknowledged before.")]


class Problem(Struct, frozen=True):
    """What is wrong with one field."""

    field: Annotated[str, Meta(description="The field, as a path with dots: `decisions.1.actions`.")]
    message: str


class Problems(Struct, frozen=True):
    """Why a request was refused."""

    errors: list[Problem]
    request: Annotated[str, Meta(description="The id of the request, as in the header `X-Request-Id`.")] = ""

    @classmethod
    def about(cls, status: int, problem: Problem, request: str = "") -> Problems:
        """The answer about one problem; it does not repeat the status."""
        return cls([problem], request)


class RewardResult(Struct, frozen=True, omit_defaults=True):
    """The result of one reward of a batch: its answer, or why there is none."""

    status: Annotated[
        int,
        Meta(
            description="The status that this reward would have had if sent alone.",
            extra_json_schema={"enum": [200, 404, 409, 410]},
        ),
    ]
    answer: RewardAnswer | None = None
    error: Problem | None = None


class RewardResults(Answer, frozen=True):
    """One result per reward, in the same order."""

    rewards: list[RewardResult]


class ActionSetRequest(Body, frozen=True):
    """An action set to register."""

    actions: Annotated[Rows, Meta(description=ROWS)]


class ActionSets(Answer, frozen=True):
    """The registered action sets."""

    action_sets: Annotated[dict[str, int], Meta(description="The number of actions of each set, by name.")]


class ModelAnswer(Answer, frozen=True):
    """The model that decides now."""

    version: Annotated[int, Meta(description="How many syncs the model has learnt from.")]
    plan: Annotated[str, Meta(description="The hash of the plan.")]
    dim: Annotated[int, Meta(description="The number of features of an action.")]
    theta: Annotated[list[float], Meta(description="The estimated parameter vector.")]


class Health(Answer, frozen=True):
    """The process is alive."""

    status: Literal["ok"]
    term: Annotated[
        Literal["running", "ended"], Meta(description="After its term a silo still decides; rewards no longer count.")
    ]


class Readiness(Answer, frozen=True):
    """Nothing keeps the party from working."""

    ready: bool
    connected: Annotated[bool, Meta(description="Whether the broker can be reached; decisions do not need it.")]
    problem: Annotated[str | None, Meta(description="The most serious problem, if there is any.")]
    problems: Annotated[
        dict[str, str],
        Meta(description="Everything that keeps the party from working properly, by kind: `broker`, `store`, ..."),
    ]


class NotReady(Readiness, frozen=True):
    """Something keeps the party from working as it should."""

    STATUS: ClassVar[int] = 503


class SiloStatus(Answer, frozen=True):
    """The state of the term. Counts of people are exact and for the silo only: no noise hides them."""

    silo: str
    term: Annotated[int, Meta(description="The number of the term, from 1.")]
    plan: Annotated[str, Meta(description="The hash of the plan.")]
    schedule: Annotated[str, Meta(description="The calendar of the syncs.")]
    visits: Annotated[
        Literal["private", "public"],
        Meta(description="Public: the guarantee does not hide that, when and how often somebody asks."),
    ]
    held: Annotated[str | None, Meta(description="Why nothing ticks, if the time is in doubt.")]
    problem: Annotated[str | None, Meta(description="Why nothing is drawn, as far as this silo knows.")]
    decisions: Annotated[int, Meta(description="Decisions of this term.")]
    without_user_key: Annotated[int, Meta(description="Decisions that came without a `user`.")]
    opted_out: Annotated[int, Meta(description="Rewards of people who have opted out: they stay in the silo.")]
    over_cap: Annotated[
        int,
        Meta(description="Rewards of people who came too often or too soon, or of a closed batch: they stay here."),
    ]
    syncs: Annotated[int | None, Meta(description="Syncs of the whole term; null if it has no end.")]
    released: Annotated[int, Meta(description="Releases drawn so far.")]
    missed: Annotated[list[int], Meta(description="The syncs, from 0, that went by without this silo's release.")]
    given_up: Annotated[list[int], Meta(description="The syncs whose release was drawn by a store that was lost.")]
    weight: Annotated[float, Meta(description="The share of this silo's batches that is in the last model.")]
    model: Annotated[int, Meta(description="How many syncs the last model has learnt from.")]
    ended: Annotated[bool, Meta(description="Whether the last batch was released.")]
    epsilon: Annotated[float | None, Meta(description="The privacy budget; null for a plan without one.")]
    delta: float | None
    adjacency: Annotated[
        Literal["replace-one", "add-remove"] | None,
        Meta(description="What the budget hides: which person took part, or whether a person took part."),
    ]
    epsilon_spent: Annotated[float | None, Meta(description="Spent in this term; null if there is no finite number.")]
    epsilon_left: float | None
    spent_against: Annotated[str | None, Meta(description="Against whom no more was spent; null before a release.")]
    epsilon_all_terms: Annotated[
        float | None, Meta(description="Spent in all terms together; null if there is no finite number.")
    ]
    delta_all_terms: float
    adjacency_all_terms: Annotated[
        Literal["replace-one", "add-remove"] | None,
        Meta(description="The adjacency of all terms, or replace-one if they differ; null before a release."),
    ]
