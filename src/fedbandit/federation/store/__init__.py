"""The stores, which survive a crash: SQLite by default, PostgreSQL by URL, one implementation over both."""

from fedbandit.federation.store.database import Engine
from fedbandit.federation.store.opening import open_engine, read_engine
from fedbandit.federation.store.rewards import Reward, Verdict
from fedbandit.federation.store.silo_store import SiloStore
from fedbandit.federation.store.sync_store import SyncStore

__all__ = ["Engine", "Reward", "SiloStore", "SyncStore", "Verdict", "open_engine", "read_engine"]
