"""A silo over HTTP, for the applications of its own organisation."""

from fedbandit.federation.http.app import create_app

__all__ = ["create_app"]
