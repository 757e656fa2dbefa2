"""Sentences about the result of a journal check or repair."""

from hanse.live.journal.repair import RepairReport, VerifyReport


def verdict_text(member: str, verdict: VerifyReport) -> str:
    """Describe what is wrong with a member's journal, or that nothing is."""
    sound_range = _records_text(verdict.first, verdict.last)
    problem = verdict.problem
    if problem is not None:
        before = (
            f"{sound_range} before it can be read" if verdict.records else "no record before it can be read"
        )
        return (
            f"The journal of {member} is damaged: {problem.file} at byte {problem.offset}: {problem.what}; "
            f"{before}. {problem.advice}"
        )
    parts = (("block", verdict.blocks), ("segment", verdict.segments), ("snapshot", verdict.snapshots))
    blocks, segments, snapshots = (_count_text(number, what) for what, number in parts)
    held = sound_range if verdict.records else "no records"
    sentences = [f"The journal of {member} is sound: {held} in {blocks}, {segments} and {snapshots}."]
    if verdict.torn:
        sentences.append(
            f"Its last {verdict.torn} bytes are of a write that was never acknowledged; the next start cuts "
            f"them off."
        )
    if verdict.live:
        sentences.append(f"{member} runs: what it is writing now was not checked.")
    return " ".join(sentences)


def is_untouched(done: RepairReport) -> bool:
    """True if a repair found nothing to do."""
    return not done.moved and not has_losses(done) and done.history_lost is None


def has_losses(done: RepairReport) -> bool:
    """True if records are lost with everything they did."""
    return done.lost is not None or done.lost_open


def repair_text(member: str, done: RepairReport) -> str:
    """Describe what a repair kept of a member's journal, and what it lost."""
    kept = "no record" if done.kept is None else _records_text(*done.kept)
    if is_untouched(done):
        return f"Nothing is wrong with the journal of {member} ({kept}); nothing was changed."
    base = f"snapshot {done.snapshot} and " if done.snapshot is not None else ""
    sentences = [f"The journal of {member} can be used again. Kept: {base}{kept}."]
    if done.lost is not None:
        uncertainty = ", and perhaps more: the end is too damaged to tell" if done.lost_open else ""
        sentences.append(f"Lost, with all they did: {_records_text(*done.lost)}{uncertainty}.")
    elif done.lost_open:
        sentences.append("The number of records lost behind them is unknown: the end is too damaged.")
    else:
        sentences.append("Nothing is lost: the state is complete.")
    if done.history_lost is not None:
        sentences.append(
            f"The snapshot keeps what {_records_text(*done.history_lost)} did; these records are "
            f"unreadable now."
        )
    if done.moved:
        sentences.append(f"Set aside in {done.moved_to}, inside the journal: {', '.join(done.moved)}.")
    return " ".join(sentences)


def _records_text(first: int, last: int) -> str:
    return f"record {first}" if first == last else f"records {first} to {last}"


def _count_text(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
