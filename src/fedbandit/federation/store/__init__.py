"""What must survive a crash: SQLite by default, PostgreSQL by URL, one implementation over both."""

from fedbandit.federation.store.engine import Engine, open_engine, read_engine
from fedbandit.federation.store.rewards import Reward, Verdict
from fedbandit.federation.store.rounds import RoundStore
from fedbandit.federation.store.silo import SiloStore

__all__ = ["Engine", "Reward", "RoundStore", "SiloStore", "Verdict", "open_engine", "read_engine"]
