"""A broker with one job, as prepared answers."""

from typing import Any

import msgspec

from hanse.api.row_records import GroupDetail, JobDetail, JobRow
from hanse.model.job import JobSpec
from hanse.model.job_parser import parse_job_form
from tests.client.canned import Answer, Asked, CannedLeague, not_found, row, task


def detail(found: dict[str, Any], form: dict[str, Any]) -> bytes:
    """A job's detail as a door writes it."""
    spec = parse_job_form(form)
    assert isinstance(spec, JobSpec), spec
    groups = tuple(
        GroupDetail(
            name=group.name, count=group.count, ask=group.ask, ask_max=None, where="", needs=(),
            duration=None, command=("make", "all things"), states={found["state"]: group.count},
        )
        for group in spec.groups
    )  # fmt: skip
    return msgspec.json.encode(JobDetail(row=msgspec.convert(found, JobRow), spec=spec, groups=groups))


class Broker:
    """Answers like a broker with one job."""

    def __init__(self, found: dict[str, Any], tasks: list[dict[str, Any]], form: dict[str, Any]) -> None:
        self.row, self.tasks, self.form = found, tasks, form
        self.submitted: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] | None = None

    def __call__(self, asked: Asked) -> Answer:
        job = f"/v1/jobs/{self.row['id']}"
        if asked.method == "POST" and asked.path == "/v1/jobs":
            self.submitted += asked.body["jobs"]
            given = self.results or [{"job": f"1-{9 + at}"} for at, _ in enumerate(asked.body["jobs"])]
            return Answer(200, {"results": given})
        if asked.path == "/v1/jobs":
            return Answer(200, {"jobs": [self.row], "next": None})
        if asked.path == f"{job}/tasks":
            after, limit = int(asked.query.get("after", -1)), int(asked.query["limit"])
            left = [one for one in self.tasks if one["index"] > after]
            page = left[:limit]
            return Answer(200, {"tasks": page, "next": str(page[-1]["index"]) if len(left) > limit else None})
        if asked.path == f"{job}/why":
            said = {"at": 2_000_000, "broker": "broker-1", "group": "main", "answered": "placed", "tasks": 3,
                    "reason": "claimed room in view", "considered": [["north", 3, "room"]]}  # fmt: skip
            return Answer(200, {"sentences": ["It [runs] in north."], "decisions": [said]})
        if asked.path == f"{job}/wait":
            return Answer(200, self.row)
        if asked.path == f"{job}/cancel":
            return Answer(200, {"job": self.row["id"]})
        if asked.path == job:
            return Answer(200, detail(self.row, self.form))
        return not_found(asked)


def broker(canned: CannedLeague, state: str = "succeeded", **changed: Any) -> Broker:
    """A league of one broker with the job 1-7."""
    count = changed.pop("total", 1)
    tasks = changed.pop("tasks", [task(index, state) for index in range(count)])
    found = row("1-7", state, total=count, **changed)
    made = Broker(found, tasks, {"name": "build", "count": count, "command": ["make", "all things"]})
    canned.broker("broker-1", made)
    return made
