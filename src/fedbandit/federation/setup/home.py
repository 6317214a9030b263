"""A party's directory on its own machine: its settings, keys, federation file and store."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.federation.setup.agreement import Agreement, check_broker
from fedbandit.federation.setup.party import Party
from fedbandit.federation.setup.roll import Roll, read_editions
from fedbandit.federation.telemetry.logs import STYLES, Style
from fedbandit.federation.wire.keys import PartyKeys, PublicKeys, Role, as_role, party_name, read_secret, write_secret
from fedbandit.federation.wire.link import BrokerAddress

__all__ = [
    "FEDERATION",
    "KEYS",
    "KEY_FILES",
    "MEMBERS",
    "NAMED",
    "SETTINGS",
    "TOKEN",
    "Home",
    "Settings",
    "put_aside",
    "rolls_of",
]

KEYS, TOKEN, SETTINGS, FEDERATION = "party.key", "token", "party.json", "federation.json"
KEY_FILES = "party*.key"  # the first keys and all later ones
MEMBERS = "members.json"  # the editions of the members that this party was given as a file
DECISIONS = "decisions.db"
STORE = "store.txt"  # the place of a term's store
ASIDE = 12  # digits of a plan's hash in the names of files that were put aside
NAMED = ("tls_certificate", "tls_key", "broker_ca")  # settings that name files
TOKEN_BYTES = 32
SHORTEST_TOKEN = 16  # characters: an operator may have chosen another token
LAST_PORT = 65_535
NEW_TOKEN = "replace it by one from a backup or a new one, and give it to the applications"
COPY_IT = "copy the complete file of your federation there"


def put_aside(folder: Path, agreed: Agreement) -> None:
    """Keep the federation's file of an ended term, and the editions of its members, under other names when a new file
    replaces it: they contain the keys that verify its ledgers."""
    file = folder / FEDERATION
    if not file.exists() or (plan := Agreement.load(file).plan.hash) == agreed.plan.hash:
        return
    for name in (FEDERATION, MEMBERS):
        if (folder / name).exists():
            (folder / _aside(name, plan[:ASIDE])).write_bytes((folder / name).read_bytes())


def rolls_of(file: Path) -> list[Roll]:
    """The members of the federation of this file, and of its earlier terms whose files are in the same directory."""
    newest = Roll(Agreement.load(file), read_editions(file.with_name(MEMBERS)))
    earlier = [
        Roll(Agreement.load(one), read_editions(one.with_name(_aside(MEMBERS, one.stem[-ASIDE:]))))
        for one in sorted(file.parent.glob(_aside(FEDERATION, "[0-9a-f]" * ASIDE)))
    ]
    return [newest, *(roll for roll in earlier if roll.charter.id == newest.charter.id)]


def _aside(name: str, plan: str) -> str:
    """The name of a file that was put aside, of the term with this plan."""
    return name.replace(".", f"-{plan}.")


@dataclass(frozen=True)
class Settings:
    """What a party decides for itself. `store` is a file in its directory or a postgresql:// URL."""

    name: str
    role: Role
    store: str = ""
    host: str = "127.0.0.1"
    port: int = 8080
    tls_certificate: str = ""
    tls_key: str = ""
    broker_ca: str = ""
    keep_raw: bool = False
    log_days: float = 0  # for how many days a silo keeps its log of decisions; 0: it keeps none
    strict: bool = False  # whether a silo refuses records with values that are missing, out of range or unknown
    broker: str = ""  # the broker's address for this party, if it differs from the federation's file
    health_port: int = 0  # where a mixer or an analyzer serves its state; 0: nowhere. A silo does so on its `port`
    log: Style = "text"  # how log lines are written
    traces: str = ""  # http://HOST:PORT of a collector that takes OpenTelemetry's traces; empty for none

    def __post_init__(self) -> None:
        self._check_kinds()
        party_name(self.name)
        as_role(self.role)
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ArgumentError("tls_certificate", "and tls_key must be given together")
        if _validate.count("port", self.port) > LAST_PORT:
            raise ArgumentError("port", f"must lie between 1 and {LAST_PORT}, got {self.port}")
        if self.broker:
            check_broker(self.broker)
        _validate.one_of("log", self.log, STYLES)
        if self.health_port and (self.role == "silo" or _validate.count("health_port", self.health_port) > LAST_PORT):
            wanted = f"a mixer's or an analyzer's port between 1 and {LAST_PORT}, or 0"
            raise ArgumentError("health_port", f"must be {wanted}, got {self.health_port}")
        if self.traces and not self.traces.startswith(("http://", "https://")):
            raise ArgumentError("traces", f"must be http://HOST:PORT or https://HOST:PORT, got {self.traces!r}")
        if "://" in self.store and not _validate.is_postgres(self.store):
            raise ArgumentError("store", f"must be a path or a postgresql:// URL, got {self.store!r}")
        if not self.log_days >= 0 or (self.log_days and self.role != "silo"):
            raise ArgumentError("log_days", f"must be a silo's number of days, or 0, got {self.log_days!r}")

    def _check_kinds(self) -> None:
        """Refuse values of the wrong type, such as a text instead of a number: people write the file by hand."""
        for field in fields(self):
            value, default = getattr(self, field.name), field.default
            if isinstance(default, bool):
                fits, wanted = isinstance(value, bool), "true or false"
            elif isinstance(default, int):
                fits, wanted = isinstance(value, int | float) and not isinstance(value, bool), "a number"
            else:
                fits, wanted = isinstance(value, str), "a text"
            if not fits:
                raise ArgumentError(field.name, f"must be {wanted}, got {value!r}")

    def save(self, path: Path) -> None:
        path.touch(mode=0o600)  # the URL of a database may hold its password
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Settings:
        try:
            with _validate.reading(str(path)):
                data = _validate.table(str(path), path.read_bytes())
                _validate.known_keys(str(path), data, cls.__dataclass_fields__, required=("name", "role"))
                return cls(**data)
        except ArgumentError as error:
            says = error.message if error.field == str(path) else f"cannot be used: {error}"
            raise ArgumentError(str(path), f"{says}; correct it, or replace it by the one of a backup") from None


@dataclass(frozen=True)
class Home:
    """The directory of one party."""

    path: Path
    settings: Settings

    @classmethod
    def create(cls, path: Path, **settings: Any) -> Home:
        """Make the directory, new keys, and the token for applications of a silo and for monitoring."""
        chosen = Settings(**settings)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        PartyKeys.generate().save(path / KEYS)
        chosen.save(path / SETTINGS)
        home = cls(path, chosen)
        if home.served_on:
            home.make_token()
        return home

    @classmethod
    def load(cls, path: Path) -> Home:
        """The home in this directory. The federation's file and the keys are read only when they are needed."""
        if not (path / SETTINGS).is_file():
            made = "name the one that `fedbandit federation join` made, or the analyzer's in a founder's"
            raise ArgumentError("home", f"must be a party's directory, {path} has no {SETTINGS}: {made}")
        return cls(path, Settings.load(path / SETTINGS))

    @cached_property
    def keys(self) -> PartyKeys:
        """The first private keys of this party."""
        return PartyKeys.load(self.path / KEYS)

    @property
    def owner(self) -> str:
        """The owner's name as it is written in the store."""
        return f"{self.settings.role} {self.settings.name}"

    @property
    def public(self) -> PublicKeys:
        """The public keys that this party shows to others when it joins."""
        return self.keys.public(self.settings.name, self.settings.role)

    @property
    def salt(self) -> bytes:
        """The secret that a silo uses to hash its users' keys and to seal its decisions. It is never rotated."""
        return self.keys.seeds["salt"]

    def later_keys(self) -> list[PartyKeys]:
        """The keys that were made after the first ones, oldest first. All must have the same salt: with another one a
        silo would start to count everybody from zero."""
        found = [PartyKeys.load(file) for file in self.key_files()[1:]]
        if any(keys.seeds["salt"] != self.salt for keys in found):
            raise ArgumentError(
                "home", f"must have the same salt in all keys; make new ones with `federation new-keys {self.path}`"
            )
        return found

    def key_files(self) -> list[Path]:
        """The files with this party's keys, in the order in which they were made."""
        files, number = [self.path / KEYS], 2
        while (file := self.path / f"party-{number}.key").exists():
            files, number = [*files, file], number + 1
        return files

    def new_keys(self) -> PublicKeys:
        """Make new keys and keep the old ones. The new ones count from the edition that names them."""
        keys = self.keys.rotated()
        keys.save(self.path / f"party-{len(self.key_files()) + 1}.key")
        return keys.public(self.settings.name, self.settings.role)

    def agreement(self) -> Agreement:
        path = self.path / FEDERATION
        if not path.is_file():
            raise ArgumentError("home", f"has no {path}: {COPY_IT}")
        try:
            return Agreement.load(path)
        except ArgumentError as error:
            says = error.message if error.field == str(path) else f"cannot be used: {error}"
            raise ArgumentError(str(path), f"{says}; {COPY_IT}") from None

    def party(self) -> Party:
        """This party as a member of its complete federation."""
        agreement = self.agreement()
        agreement.complete()
        name, role = self.settings.name, self.settings.role
        return Party.member(agreement, self.keys, name, role, self.later_keys(), read_editions(self.path / MEMBERS))

    def make_token(self) -> None:
        """Make a token, unless there is one."""
        if not (self.path / TOKEN).exists():
            write_secret(self.path / TOKEN, secrets.token_urlsafe(TOKEN_BYTES).encode())

    @property
    def served_on(self) -> int:
        """The port on which this party serves its state; 0 if it does not."""
        return self.settings.port if self.settings.role == "silo" else self.settings.health_port

    def token(self) -> str:
        """The token that applications must show. A truncated one (after a full disk, say) is refused: an empty token
        would let everybody in."""
        file = self.path / TOKEN
        if not file.is_file():
            raise ArgumentError(str(file), f"is not there: {NEW_TOKEN}")
        token = read_secret(file).decode(errors="replace").strip()
        if len(token) < SHORTEST_TOKEN or not token.isascii():
            says = f"must hold a token of at least {SHORTEST_TOKEN} characters, got {len(token)}: it is damaged"
            raise ArgumentError(str(file), f"{says}; {NEW_TOKEN}")
        return token

    def store(self, plan_hash: str) -> str:
        """The party's store, as a path or a URL. A mixer and an analyzer begin a new file for a new plan."""
        if self.settings.store:
            return self.settings.store
        suffix = "" if self.settings.role == "silo" else f"-{plan_hash[:12]}"
        return str(self.path / f"{self.settings.role}{suffix}.db")

    def note_store(self, plan_hash: str) -> None:
        """Note where the store of a mixer or an analyzer is in this term, if somebody has chosen the place: in the next
        term it must be somewhere else, and this one will be looked for."""
        file = self.path / _aside(STORE, plan_hash[:ASIDE])
        if self.settings.store and not (file.exists() and self.store_of(plan_hash) == self.settings.store):
            file.unlink(missing_ok=True)
            write_secret(file, self.settings.store.encode())  # a URL may hold a password

    def store_of(self, plan_hash: str) -> str:
        """The party's store in a term, perhaps an earlier one."""
        kept = self.path / _aside(STORE, plan_hash[:ASIDE])
        return read_secret(kept).decode() if kept.exists() else self.store(plan_hash)

    @property
    def decision_log(self) -> Path:
        """The file of a silo's log of decisions, if it keeps one."""
        return self.path / DECISIONS

    def broker(self, agreement: Agreement) -> BrokerAddress:
        """The broker's address: the one in this party's settings or, by default, in the federation's file."""
        return BrokerAddress(self.settings.broker or agreement.broker, self.settings.broker_ca or None)
