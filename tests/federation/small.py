"""Small plans."""

from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import every


def small_plan(**changes):
    """Three silos, four syncs of five users, two features; visits are public, so that a test can count users."""
    plan = Plan(
        silos=3, rounds=20, dim=2, privacy=Privacy(1.0, 0.1), trust="secure-sum", schedule=every(5), visits="public"
    )
    return plan.changed(**changes)
