"""A silo's service, as in the tests of HTTP."""

from tests.federation.http.conftest import http, link, service, silo

__all__ = ["http", "link", "service", "silo"]
