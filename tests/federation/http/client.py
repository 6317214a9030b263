"""A client that calls an ASGI application without a network."""

import asyncio

import httpx

ACTIONS = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]
TOKEN = "test-token"


class Client:
    """Requests one after the other, on one event loop; an exception of the application comes out here."""

    def __init__(self, app, authorization):
        self._runner = asyncio.Runner()
        headers = {"Authorization": authorization}
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://silo", headers=headers)

    def request(self, method, path, **more):
        return self._runner.run(self._http.request(method, path, **more))

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, **more):
        return self.request("POST", path, **more)

    def put(self, path, **more):
        return self.request("PUT", path, **more)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._runner.run(self._http.aclose())
        self._runner.close()
