"""JSON schemas of an OpenAPI document: their types in words, tables of their fields, and examples."""

import json
from typing import Any, Final

from tools.reference.markdown import table

Schema = dict[str, Any]

SAMPLES: Final[dict[str, Any]] = {
    "BrokerAnswer.name": "broker-1",
    "ClusterAnswer.name": "north",
    "JobDetail.after": [["1-6", "succeeded"]],
    "VoteRequest.ballot": [1, "broker-1"],
    "Vote.accepted": [1, "broker-1"],
    "Vote.promised": [1, "broker-1"],
    "SubmitResult.job": "1-7",
    "address": "10.0.0.1:7401",
    "after": "1700000000000000.1-7",
    "at": 1_700_000_000_000_000,
    "broker": "broker-1",
    "cluster": "north",
    "cpu": 1_000,
    "csr": "-----BEGIN CERTIFICATE REQUEST-----\n...",
    "cursor": "1700000000000000.1-7",
    "id": "1-7",
    "job": "1-7",
    "key": "-----BEGIN PRIVATE KEY-----\n...",
    "klass": "batch",
    "league": "harbour",
    "memory": 4_294_967_296,
    "name": "nightly-build",
    "owner": "broker-1",
    "reason": "kernel update",
    "state": "running",
    "submitted": 1_700_000_000_000_000,
    "started": 1_700_000_001_000_000,
    "task": "1-7.0",
    "tenant": "physics",
    "token": "hanse-join-1...",
}
"""Values of fields by their names, where a sample of their type alone would say little."""
DEPTH_MAX: Final = 3
"""Levels of an example in which every field is shown."""
_WORDS: Final = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false",
                 "null": "null", "object": "mapping"}  # fmt: skip


def record_of(schema: Schema) -> str:
    """The name of the record that a schema refers to; empty: none."""
    return str(schema["$ref"]).rpartition("/")[2] if "$ref" in schema else ""


def kind(schema: Schema) -> str:
    """A type in words; records are linked."""
    name = record_of(schema)
    if name:
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(part) for part in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items') or {})}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"mapping of texts to {kind(schema['additionalProperties'])}"
    return _WORDS.get(schema.get("type", ""), "any value") + _bounds(schema)


def _bounds(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f" from {least:,} to {most:,}"
    if least is not None:
        return f" from {least:,}"
    if "maxLength" in schema:
        return f" of at most {schema['maxLength']:,} characters"
    return ""


def fields(schema: Schema) -> str:
    """The table of a record's fields; an enumeration's words."""
    if "enum" in schema:
        return f"One of {kind(schema)}."
    required = schema.get("required", [])
    return table(
        ("field", "type", "default"),
        [
            (f"`{name}`", kind(part), "required" if name in required else f"`{_json(part.get('default'))}`")
            for name, part in schema.get("properties", {}).items()
        ],
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def sample(schema: Schema, known: dict[str, Schema], name: str = "", depth: int = 0) -> Any:
    """A value of the type. ``name``: the field that it stands in, as ``RecordDecision.field``."""
    record = record_of(schema)
    if record:
        return _value(known[record], known, record, depth)
    if "anyOf" in schema:
        parts = [part for part in schema["anyOf"] if part.get("type") != "null"]
        absent = len(parts) < len(schema["anyOf"]) and _named(name) is None
        return None if absent else sample(parts[0], known, name, depth)
    return _value(schema, known, name, depth)


def _value(schema: Schema, known: dict[str, Schema], name: str, depth: int) -> Any:
    """As ``sample``; of a record ``name`` is its own."""
    if "enum" in schema:
        return schema["enum"][0]
    what = str(schema.get("type"))
    if what == "object":
        return _object(schema, known, name, depth)
    if what == "array":
        if isinstance(_named(name), list):
            return _named(name)
        item = schema.get("items") or {}
        one = sample(item, known, name.removesuffix("s"), depth + 1)
        return [one] if one else []
    known_value = _named(name)
    if isinstance(known_value, _PYTHON.get(what, object)):
        return known_value
    return {"string": "", "integer": schema.get("minimum", 0), "number": 0.5, "boolean": False}.get(what)


def _object(schema: Schema, known: dict[str, Schema], record: str, depth: int) -> dict[str, Any]:
    """Fields that have a default are left out where they would nest deeply."""
    required = schema.get("required", [])
    return {
        name: sample(part, known, f"{record}.{name}", depth + 1)
        for name, part in schema.get("properties", {}).items()
        if name in required or depth < DEPTH_MAX
    }


def _named(name: str) -> Any:
    return SAMPLES.get(name, SAMPLES.get(name.rpartition(".")[2]))


_PYTHON: Final[dict[str, type]] = {"string": str, "integer": int, "number": float, "boolean": bool}
