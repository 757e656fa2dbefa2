"""The document says what the doors do: it is current and complete."""

from pathlib import Path
from typing import Any

import pytest

from hanse.live.http.openapi import document, text
from hanse.live.http.operation_record import refusals
from hanse.live.http.operation_table import OPERATIONS_BY_ROLE

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize(("door", "name"), [("broker", "openapi.json"), ("warden", "openapi-cluster.json")])
def test_the_checked_in_document_is_current(door: str, name: str) -> None:
    made = text(door)
    assert (REFERENCE / name).read_text(encoding="utf-8") == made, (
        f"run: python -m hanse.live.http.openapi {door} > docs/reference/{name}"
    )


@pytest.mark.parametrize("door", OPERATIONS_BY_ROLE)
def test_every_operation_is_described_with_every_answer(door: str) -> None:
    found = document(door)
    described = {
        (verb.upper(), path): entry for path, verbs in found["paths"].items() for verb, entry in verbs.items()
    }
    assert set(described) == {(operation.verb, operation.path) for operation in OPERATIONS_BY_ROLE[door]}
    names = [entry["operationId"] for entry in described.values()]
    assert len(names) == len(set(names))
    for operation in OPERATIONS_BY_ROLE[door]:
        entry = described[operation.verb, operation.path]
        assert set(entry["responses"]) == {"200", *map(str, refusals(operation))}
        assert (entry.get("security") == []) == operation.public
        if not operation.public:
            assert entry["x-roles"] == list(operation.roles)
            assert {"401", "403"} <= set(entry["responses"])
        assert {"429", "500", "503"} <= set(entry["responses"])
        assert {p["name"] for p in entry.get("parameters", [])} == {p.name for p in operation.parameters}


@pytest.mark.parametrize("door", OPERATIONS_BY_ROLE)
def test_every_reference_leads_somewhere(door: str) -> None:
    found = document(door)
    schemas = found["components"]["schemas"]

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [one for part in value.values() for one in references(part)]
        return [one for part in value for one in references(part)] if isinstance(value, list) else []

    used = set(references(found))
    assert used
    assert used <= {f"#/components/schemas/{name}" for name in schemas}
