"""schemathesis draws requests from the OpenAPI description: no 5xx, and answers as described."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from small import small_plan

from fedbandit.federation.http.app import Service, create_app
from fedbandit.federation.silo import Silo

TOKEN = "test-token"


@pytest.fixture
def api_schema(tmp_path):
    with Silo.open(tmp_path / "silo.db", small_plan()) as silo:
        yield schemathesis.openapi.from_asgi("/openapi.json", create_app(Service(silo), TOKEN))


schema = schemathesis.pytest.from_fixture("api_schema")


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_makes_a_server_error(case):
    case.call_and_validate(
        headers={"Authorization": f"Bearer {TOKEN}"},
        checks=[not_a_server_error, status_code_conformance, response_schema_conformance],
    )
