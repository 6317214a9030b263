# %% [markdown]
# # Three newspapers rank their front pages
#
# A reader comes, six articles compete for the top of the page, and the reader clicks or does not. The newspapers learn
# together which topic draws whom, and none of them shows the others a reader. Everything is live except the broker:
# silos have their own stores, messages are sealed, and the noise is exact (`fb.Federation.local`).
#
#     python examples/news/news.py

# %%
from __future__ import annotations

import random

import fedbandit as fb

TOPICS = ["politics", "sports", "culture"]
LIKES = {"young": "sports", "middle": "politics", "old": "culture"}  # what nobody knows at first
DAYS, READERS = 12, 60  # readers of one newspaper on one day

# %% [markdown]
# The schema is for articles that change every day. What counts is the topic, how fresh the article is, and how the
# topic suits the age group of the reader.

# %%
schema = fb.Schema(
    context={"group": fb.Category(list(LIKES), other=False)},
    features={"topic": fb.Category(TOPICS, other=False), "hours": fb.Number(0, 24)},
    interactions=[("group", "topic")],
)
plan = fb.Plan(
    silos=3,
    rounds=DAYS,
    people=READERS,
    schema=schema,
    privacy=fb.Privacy(epsilon=8.0, delta=1e-5),
    schedule=fb.clock(86_400),
    confidence="practical",
    policy=fb.Policy("ucb", floor=0.05),  # one reader in twenty sees a random article on top
)
print(f"{schema.dim} columns; {plan.guarantee.statement}")


# %%
def front_page(rng: random.Random) -> list[dict[str, object]]:
    """Six articles of the day."""
    return [
        {"id": f"article {number}", "features": {"topic": rng.choice(TOPICS), "hours": rng.uniform(0, 24)}}
        for number in range(6)
    ]


def clicks(rng: random.Random, group: str, article: dict[str, object]) -> float:
    """Readers click on what their group likes, and more often if it is fresh."""
    features = article["features"]
    assert isinstance(features, dict)
    liked = features["topic"] == LIKES[group]
    return float(rng.random() < (0.7 if liked else 0.1) - 0.1 * features["hours"] / 24)


# %% [markdown]
# The run takes twelve days. At the end of each day the newspapers synchronise.

# %%
rng, rates = random.Random(0), []
with fb.Federation.local(plan, ["Times", "Post", "Courier"]) as federation:
    for day in range(DAYS):
        clicked = 0.0
        for silo in federation.silos.values():
            page = front_page(rng)
            for reader in range(READERS):
                group = rng.choice(list(LIKES))
                decision = silo.decide(page, context={"group": group}, user=f"{day}/{reader}")
                reward = clicks(rng, group, page[decision.action])
                silo.reward(decision.id, reward)
                clicked += reward
        rates.append(clicked / (3 * READERS))
        federation.tick()

first, last = sum(rates[:2]) / 2, sum(rates[-4:]) / 4
print(f"clicks on the top article: {first:.0%} in the first two days, {last:.0%} in the last four")
