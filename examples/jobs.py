"""Programs as jobs: submit, wait, read what they wrote, ask why. Run it after ``hanse up``."""

import hanse


def main() -> None:
    """Run a job of three tasks, and one that fails."""
    with hanse.Client() as client:
        plan = client.plan({"command": "true", "cpus": 1})
        print("it would start now" if plan.starts_now else "it would wait")
        job = client.run('echo "task $HANSE_TASK"', count=3, name="greeting")
        print(job.wait().state, *(job.logs(task, "stdout").strip() for task in range(3)), sep=", ")
        broken = client.run("exit 3", name="broken")
        try:
            broken.result()
        except hanse.JobFailedError as error:
            print(error)
        print(broken.why())


if __name__ == "__main__":
    main()
