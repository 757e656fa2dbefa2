"""A watcher of a league's events, as programs write them."""

import http.client
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from hanse.league.config import Address


class Heard(NamedTuple):
    """One event."""

    kind: str
    id: str
    data: Any


class Watcher:
    """A stream of events; iterating waits for the next one."""

    def __init__(
        self,
        address: Address,
        context: ssl.SSLContext,
        headers: dict[str, str],
        query: str = "",
        last: str = "",
    ) -> None:
        self._connection = http.client.HTTPSConnection(
            address.host, address.port, context=context, timeout=60
        )
        more = {"Last-Event-ID": last} if last else {}
        self._connection.request("GET", f"/v1/events{query}", headers={**headers, **more})
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.last = last
        """The id to come back with."""
        self.comments: list[str] = []

    def __iter__(self) -> Iterator[Heard]:
        kind, data, mark = "", "", ""
        for raw in self._answer:
            line = raw.decode().rstrip("\n")
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                self.comments.append(line)
            elif name == "id":
                mark = self.last = value
            elif name == "event":
                kind = value
            elif name == "data":
                data = value
            elif not line:
                if data:
                    yield Heard(kind, mark, msgspec.json.decode(data))
                kind, data, mark = "", "", ""

    def upto(self, kind: str, **wanted: Any) -> list[Heard]:
        """Everything until an event of this kind with these data has come, which is the last."""
        found = []
        for heard in self:
            found.append(heard)
            if heard.kind == kind and all(heard.data[name] == value for name, value in wanted.items()):
                return found
        raise AssertionError(f"the stream ended after {found}")

    def opened(self) -> "Watcher":
        """Wait until the door has said where the stream begins."""
        assert self.status == 200
        while not self.last:
            line = self._answer.readline().decode()
            if line.startswith("id: "):
                self.last = line.removeprefix("id: ").strip()
        return self

    def close(self) -> None:
        self._answer.close()
        self._connection.close()
