"""The reference pages of the HTTP interface, from the OpenAPI documents that the doors serve."""

import json
from collections.abc import Iterator
from typing import Any, Final

from hanse.live.http.openapi import document
from tools.reference.markdown import fence, paragraphs, table
from tools.reference.schemas import fields, kind, record_of, sample

TITLES: Final = {"broker": "HTTP interface", "warden": "HTTP interface of a cluster"}
SERVED: Final = {
    "broker": "Operations of a broker. A cluster has [operations of its own](http-cluster.md).",
    "warden": "Operations of a cluster, which its warden answers. A runner on a machine of its own has "
    "those of "
    "`/v1/logs` and `/v1/waits`. Everything else is asked of a [broker](http.md).",
}
DOCUMENTS: Final = {"broker": "openapi.json", "warden": "openapi-cluster.json"}
BODIES: Final[dict[str, Any]] = {
    "submit_jobs": {"jobs": [{"name": "nightly-build", "count": 3, "cpus": 2, "command": "make all"}]},
    "plan_job": {"name": "nightly-build", "count": 3, "cpus": 2, "command": "make all"},
    "revoke_people": {"names": ["ci"]},
    "drain_nodes": {"nodes": [3], "reason": "kernel update"},
}
"""Bodies of requests that people write; the others are made from their types."""


def broker_page() -> str:
    """The page of a broker's operations."""
    return page("broker")


def warden_page() -> str:
    """The page of a cluster's operations."""
    return page("warden")


def page(door: str) -> str:
    """The page of one kind of member."""
    found = document(door)
    known = found["components"]["schemas"]
    parts: list[str] = []
    statuses: dict[str, list[str]] = {}
    for path, verbs in found["paths"].items():
        for verb, entry in verbs.items():
            parts += list(operation(verb.upper(), path, entry, known))
            for status, answer in entry["responses"].items():
                if status != "200" and answer["description"] not in statuses.setdefault(status, []):
                    statuses[status].append(answer["description"])
    return paragraphs(
        f"# {TITLES[door]}",
        fence("sh", curl("GET", "/v1/league" if door == "broker" else "/v1/cluster")),
        f"{SERVED[door]} [Other programs](../user/api.md) explains identities, errors, lists, events and "
        "limits. This page has the same content as the OpenAPI document "
        f"[{DOCUMENTS[door]}]({DOCUMENTS[door]}), which every such server "
        f"serves at `/openapi.json`. {found['info']['description'].partition(' docs/')[0]}",
        "Answers on this page show which fields there are; their values are made up.",
        "## Operations",
        *parts,
        "## Error statuses",
        "Every answer with a status of 300 or more is an [ErrorAnswer](#erroranswer).",
        table(("status", "meaning"), [(key, " Or: ".join(statuses[key])) for key in sorted(statuses)]),
        "## Records",
        *(part for name in known for part in _record(name, known[name])),
    )  # fmt: skip


def operation(verb: str, path: str, entry: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    """One operation: an example, what it does, who may ask, what is given and what comes back."""
    body = request_body(entry, known)
    yield f"### {verb} {path}"
    yield fence("sh", curl(verb, example_path(path, entry), body, public=not entry.get("x-roles")))
    yield entry["summary"].replace("``", "`")
    roles = entry.get("x-roles")
    yield f"Operation `{entry['operationId']}`. Roles: {', '.join(roles) if roles else 'everybody'}."
    rows = [
        (f"`{one['name']}`", one["in"], kind(one["schema"]), _default(one), one.get("description", ""))
        for one in entry.get("parameters", ())
    ]
    if rows:
        yield table(("parameter", "in", "type", "default", "meaning"), rows)
    media, answer = next(iter(entry["responses"]["200"]["content"].items()))
    errors = ", ".join(sorted(status for status in entry["responses"] if status != "200"))
    given = f"Body: {kind(_body_schema(entry))}. " if body is not None else ""
    if record_of(answer["schema"]):
        yield f"{given}Answer: {kind(answer['schema'])}. Errors: {errors}."
        yield fence("json", json.dumps(sample(answer["schema"], known), indent=2, ensure_ascii=False))
    else:
        yield f"{given}Answer: `{media}`. Errors: {errors}."


def request_body(entry: dict[str, Any], known: dict[str, Any]) -> Any:
    """An example of an operation's body; None: it takes none."""
    if "requestBody" not in entry:
        return None
    return BODIES.get(entry["operationId"]) or sample(_body_schema(entry), known)


def example_path(path: str, entry: dict[str, Any]) -> str:
    """The path with examples of what stands in it."""
    for one in entry.get("parameters", ()):
        if one["in"] == "path":
            path = path.replace(f"{{{one['name']}}}", str(one["example"]))
    return path


def curl(verb: str, path: str, body: Any = None, public: bool = False) -> str:
    """A command that asks a door."""
    words = ["curl --cacert ca.pem"]
    if not public:
        words[0] += ' -H "Authorization: Bearer $TOKEN"'
    if body is not None:
        words.append(f"--json '{json.dumps(body, ensure_ascii=False)}'")
    elif verb == "POST":
        words[0] += " -X POST"
    return " \\\n     ".join([*words, f"https://HOST:PORT{path}"])


def _body_schema(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = entry["requestBody"]["content"]["application/json"]["schema"]
    return found


def _default(parameter: dict[str, Any]) -> str:
    if parameter.get("required"):
        return "required"
    value = parameter["schema"].get("default")
    return "" if value is None else f"`{value}`"


def _record(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield " ".join(schema.get("description", "").replace("``", "`").split())
    yield fields(schema)
