"""The OpenAPI 3.1 document of a server, generated from the table of its operations.

``python -m hanse.live.http.openapi broker`` (or ``warden``, ``runner``) prints it.
``docs/reference/openapi.json`` and ``docs/reference/openapi-cluster.json`` are its output, and a test checks
that they are current.
"""

import sys
from typing import Any, Final, get_args

import msgspec

from hanse import __version__
from hanse.api.records import ErrorAnswer
from hanse.live.http.operation_record import JSON, Location, Operation, Parameter, refusals
from hanse.live.http.operation_table import EVENT_RECORDS, OPERATIONS_BY_ROLE, READY
from hanse.model.constraints import Constraint

_REFERENCE: Final = "#/components/schemas/{name}"
_CONDITIONS: Final = tuple(_REFERENCE.format(name=kind.__name__) for kind in get_args(Constraint))
"""References to the records of a condition. The records hold each other as arrays, which few generators
follow. They are described as plain arrays; ``GroupDetail.where`` has the same as text."""
_SECURITY: Final[list[dict[str, list[str]]]] = [{"certificate": []}, {"token": []}]
_TITLES: Final = {"broker": "a broker", "warden": "a cluster", "runner": "a runner"}
_HEADERS: Final = {
    307: ("Location", "The address to ask instead."),
    401: ("WWW-Authenticate", "The accepted authentication."),
    429: ("Retry-After", "Seconds to wait."),
    503: ("Retry-After", "Seconds to wait."),
}


def document(role: str) -> dict[str, Any]:
    """Return the document of the server of a role."""
    operations = OPERATIONS_BY_ROLE[role]
    records = [
        kind
        for operation in operations
        for kind in (operation.body, operation.answer)
        if kind is not None and kind is not dict
    ]
    kinds = list(dict.fromkeys([*records, ErrorAnswer, *(EVENT_RECORDS if role == "broker" else ())]))
    _, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.verb.lower()] = _describe_operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Hanse: HTTP API of {_TITLES[role]}",
            "version": __version__,
            "description": "Times are unix microseconds; amounts milli-CPUs, bytes, whole GPUs. "
            "docs/user/api.md says more.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": _SECURITY,
        "paths": paths,
        "components": {
            "schemas": {
                name: _simplify_schema(components[name])
                for name in sorted(components)
                if _REFERENCE.format(name=name) not in _CONDITIONS
            },
            "securitySchemes": {
                "certificate": {
                    "type": "mutualTLS",
                    "description": "A certificate of the league's authority.",
                },
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An access token: 'hanse access create'.",
                },
            },
        },
    }


def _describe_operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.doc,
        "parameters": [_describe_parameter(parameter) for parameter in operation.parameters],
        "responses": {"200": _success_response(operation)},
    }
    if not operation.parameters:
        del described["parameters"]
    if operation.public:
        described["security"] = []
    else:
        described["x-roles"] = [str(role) for role in operation.roles]
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": _reference(operation.body)}},
        }
    for status, description in sorted(refusals(operation).items()):
        described["responses"][str(status)] = _error_response(operation, status, description)
    return described


def _success_response(operation: Operation) -> dict[str, Any]:
    """Return the response of success."""
    if operation.answer is None:
        schema: dict[str, Any] = {"type": "string"}
        if operation.media.startswith("application/octet"):
            schema = {"type": "string", "format": "binary"}
    else:
        schema = _reference(operation.answer)
    return {"description": "As asked.", "content": {operation.media: {"schema": schema}}}


def _error_response(operation: Operation, status: int, says: str) -> dict[str, Any]:
    schema: dict[str, Any] = _reference(ErrorAnswer)
    if operation is READY and status == 503:
        assert operation.answer is not None
        schema = {"anyOf": [_reference(operation.answer), schema]}
    found: dict[str, Any] = {"description": says, "content": {JSON: {"schema": schema}}}
    if status in _HEADERS:
        name, description = _HEADERS[status]
        found["headers"] = {name: {"description": description, "schema": {"type": "string"}}}
    return found


def _reference(kind: type) -> dict[str, Any]:
    if kind is dict:
        return {"type": "object"}
    return {"$ref": _REFERENCE.format(name=kind.__name__)}


def _describe_parameter(parameter: Parameter) -> dict[str, Any]:
    """Return a parameter in OpenAPI form."""
    schema: dict[str, Any]
    if parameter.bounds is not None:
        schema = {"type": "integer", "minimum": parameter.bounds[0], "maximum": parameter.bounds[1]}
    else:
        schema = {"type": "string"}
        if parameter.choices:
            schema["enum"] = list(parameter.choices)
        elif parameter.pattern:
            schema["pattern"] = parameter.pattern
        if not parameter.choices:
            schema["maxLength"] = parameter.length_max
    if parameter.default:
        schema["default"] = int(parameter.default) if parameter.bounds is not None else parameter.default
    found: dict[str, Any] = {
        "name": parameter.name,
        "in": str(parameter.location),
        "description": parameter.doc,
        "required": parameter.location is Location.PATH,
        "schema": schema,
    }
    if parameter.is_list:
        default = parameter.default.split(",")
        del schema["default"]
        found["schema"] = {"type": "array", "items": schema, "minItems": 1, "default": default}
        found["style"], found["explode"] = "form", False
    if parameter.example:
        found["example"] = parameter.example
    return found


def _simplify_schema(schema: Any) -> Any:
    """Return a schema that client generators understand: without the line breaks of our docstrings, and with
    tuples as arrays of any of their item types."""
    if isinstance(schema, list):
        return [_simplify_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: " ".join(value.split())
        if key == "description" and isinstance(value, str)
        else _simplify_schema(value)
        for key, value in schema.items()
    }
    if found.get("$ref") in _CONDITIONS:
        return {"type": "array", "items": {}}
    if "anyOf" in found:
        choices = found["anyOf"]
        found["anyOf"] = [choice for at, choice in enumerate(choices) if choice not in choices[:at]]
    places = found.pop("prefixItems", None)
    if places is not None:
        kinds = [kind for at, kind in enumerate(places) if kind not in places[:at]]
        found["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return found


def text(role: str) -> str:
    """Return the document as it is checked in."""
    return msgspec.json.format(msgspec.json.encode(document(role)), indent=1).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(text(sys.argv[1]))
