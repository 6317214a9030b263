"""A whole federation on one machine: real processes, real HTTP, users that can be replayed."""

from fedbandit.federation.demo.live import Live, play_live
from fedbandit.federation.demo.replay import replay, replay_alone
from fedbandit.federation.demo.users import Users, draw_users

__all__ = ["Live", "Users", "draw_users", "play_live", "replay", "replay_alone"]
