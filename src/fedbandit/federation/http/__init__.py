"""A silo over HTTP, for the applications of its own organisation.

One table of routes (`routes.py`) says what is served. A route's body, path parameter and answers are the Structs in the
signature of its call (`service.py`, `schemas.py`): requests are checked against them, and the OpenAPI document is
generated from them.
"""

from fedbandit.federation.http.app import create_app

__all__ = ["create_app"]
