"""schemathesis draws requests from the OpenAPI description: no 5xx, and answers as described."""

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.service import Service
from fedbandit.federation.silo.serving import Silo
from tests.federation.http.client import TOKEN
from tests.federation.small import small_plan

QUIET = settings(
    max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)
OPEN = ("/healthz", "/readyz")
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@schemathesis.serializer("application/msgpack")
def packed(context, value):
    """A value in MessagePack; one that it cannot say (a whole number beyond 64 bits) is sent as text that is none."""
    try:
        return value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    except (OverflowError, TypeError):
        return repr(value).encode()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_makes_a_server_error(tmp_path, mode):
    with Silo.open(tmp_path / "silo.db", small_plan()) as silo:
        schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(Service(silo), TOKEN))
        operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
        assert len(operations) == 11
        for operation in operations:
            strategy = operation.as_strategy(generation_mode=mode)

            @given(case=strategy)
            @settings(QUIET)
            def check(case):
                response = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
                case.validate_response(response, checks=CHECKS)

            if operation.path in OPEN and mode is GenerationMode.NEGATIVE:
                with pytest.raises(Unsatisfiable):  # without body, parameter and token, nothing can be wrong
                    check()
            else:
                check()
