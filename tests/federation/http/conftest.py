"""A silo, its service, and a client that shows the token."""

import pytest

from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.service import Service
from fedbandit.federation.silo.serving import Silo
from tests.federation.http.client import TOKEN, Client
from tests.federation.small import small_plan


class Connected:
    """A connection to the federation that is as the test says."""

    def __init__(self):
        self.connected, self.troubles, self.refusals = False, {}, {}


@pytest.fixture
def silo(tmp_path):
    with Silo.open(tmp_path / "silo.db", small_plan()) as opened:
        yield opened


@pytest.fixture
def link():
    return Connected()


@pytest.fixture
def service(silo, link):
    service = Service(silo, link)
    yield service
    service.close()


@pytest.fixture
def http(service):
    with Client(create_app(service, TOKEN), f"Bearer {TOKEN}") as client:
        yield client
