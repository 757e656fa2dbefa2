"""What is read from Slurm: its lists, its complaints, its reasons; without any Slurm."""

import pytest

from hanse.live.backends.slurm.cli import read_job, read_node, read_partition
from hanse.live.backends.slurm.driver import (
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmRefusedError,
    SlurmRetryLaterError,
    SlurmUnavailableError,
    error_of_complaint,
    parse_gres,
)
from hanse.live.backends.slurm.pending_reasons import explain_reason, is_barred


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("gpu:2,fpga:3", {"gpu": 2, "fpga": 3}),
        ("gpu:a100:2(S:0-1),gpu:v100:1(S:1)", {"gpu": 3}),
        ("gpu:0,fpga:0", {}),
        ("gres:gpu:1", {"gpu": 1}),
        ("gres/gpu=4", {"gpu": 4}),
        ("gpu", {"gpu": 1}),
        ("gpu:a100:2(IDX:0,3),fpga:1", {"gpu": 2, "fpga": 1}),
        ("(null)", {}),
        ("N/A", {}),
        ("", {}),
    ],
)
def test_generic_resources_are_counted(text: str, counts: dict[str, int]) -> None:
    assert dict(parse_gres(text)) == counts


def test_a_line_of_squeue() -> None:
    line = "12|3|15|RUNNING|n1|2|1.50G|gres:gpu:1|1700000000|None|hanse:north:00:1-7.0..4#1"
    expected = SlurmJob(
        12, 3, 15, "hanse:north:00:1-7.0..4#1", "RUNNING", "n1", 2, 3 << 29, (("gpu", 1),),
        launched_at=1_700_000_000,
    )  # fmt: skip
    assert read_job(line) == expected
    assert expected.reference == "12_3"
    alone = read_job("12|N/A|12|PENDING||1|64M|N/A|1700000000|BeginTime|a|b")
    assert alone == SlurmJob(12, -1, 12, "a|b", "PENDING", "", 1, 64 << 20, reason="BeginTime")  # a guess
    assert alone is not None
    assert alone.reference == "12"
    assert read_job("slurm_load_jobs error: x") is None


@pytest.mark.parametrize(
    ("state", "is_open"),
    [
        ("IDLE", True), ("MIXED", True), ("ALLOCATED+COMPLETING", True), ("IDLE+POWERED_DOWN", False),
        ("IDLE+DRAIN", False), ("MIXED+DRAIN", False), ("DOWN", False), ("IDLE*", False),
        ("DOWN*+DRAIN", False), ("IDLE+NOT_RESPONDING", False), ("UNKNOWN", False),
        ("IDLE+RESERVED", False), ("IDLE+MAINT", False),
    ],
)  # fmt: skip
def test_which_nodes_are_open(state: str, is_open: bool) -> None:
    node = read_node(
        f"NodeName=n1 Arch=x86_64  CPUAlloc=3 CPUEfctv=14 CPUTot=16 ActiveFeatures=b,a Gres=gpu:2 "
        f"GresUsed=gpu:1(IDX:0) OS=Linux 6.1 #1 SMP x=y RealMemory=4000 AllocMem=64 State={state} "
        f"MemSpecLimit=100 Partitions=p,q Reason=Duplicate jobid [root@2026-11-16T17:44:48]"
    )
    assert node == SlurmNode(
        "n1", is_open, 14, 3_900 << 20, (("gpu", 2),), 3, 64 << 20, (("gpu", 1),), ("p", "q"), ("a", "b"),
        "x86_64", "Linux", state, "Duplicate jobid [root@2026-11-16T17:44:48]",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            SlurmUnavailableError,
        ),
        ("Batch job submission failed: Socket timed out on send/recv operation", SlurmUnavailableError),
        ("Connection reset by peer", SlurmUnavailableError),
        ("Broken pipe", SlurmUnavailableError),
        ("Required node not available (down, drained or reserved)", SlurmRetryLaterError),
        ("Required partition not available (inactive or drain)", SlurmRetryLaterError),
        ("Slurm temporarily unable to accept job, sleeping and retrying", SlurmRetryLaterError),
        ("Batch job submission failed: Invalid account or account/partition combination", SlurmRefusedError),
        ("Requested node configuration is not available", SlurmRefusedError),
    ],
)
def test_what_slurm_means(words: str, kind: type[Exception]) -> None:
    assert type(error_of_complaint(words)) is kind


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("PartitionName=a AllowGroups=ALL Default=YES State=UP X=y", SlurmPartition("a", True, True)),
        ("PartitionName=b Default=NO State=DOWN X=y", SlurmPartition("b", False, False)),
        ("PartitionName=c Default=NO State=DRAIN", SlurmPartition("c", False, False)),
        ("PartitionName=d Default=NO State=INACTIVE", SlurmPartition("d", False, False)),
    ],
)
def test_a_line_of_a_partition(line: str, found: SlurmPartition) -> None:
    assert read_partition(line) == found


@pytest.mark.parametrize(
    ("reason", "words", "barred"),
    [
        ("PartitionDown", "PartitionDown (the partition is down)", True),
        ("QOSNotAllowed", "QOSNotAllowed (the QOS is not allowed here)", True),
        ("QOSGrpCpuLimit", "QOSGrpCpuLimit (a limit of the QOS is reached)", True),
        ("Resources", "Resources (there is no room for it yet)", False),
        ("Priority", "Priority (other jobs come first)", False),
        ("WhateverComesNext", "WhateverComesNext", False),
        ("", "", False),
    ],
)
def test_reasons_in_words(reason: str, words: str, barred: bool) -> None:
    assert (explain_reason(reason), is_barred(reason)) == (words, barred)
