"""Sentences about the result of a journal check or repair."""

from hanse.live.journal.repair import Repaired, Verdict


def verdict_words(member: str, verdict: Verdict) -> str:
    """Describe what is wrong with a member's journal, or that nothing is."""
    good = _range(verdict.first, verdict.last)
    problem = verdict.problem
    if problem is not None:
        before = f"{good} before it can be read" if verdict.records else "no record before it can be read"
        return (
            f"The journal of {member} is damaged: {problem.file} at byte {problem.offset}: {problem.what}; "
            f"{before}. {problem.advice}"
        )
    parts = (("block", verdict.blocks), ("segment", verdict.segments), ("snapshot", verdict.snapshots))
    blocks, segments, snapshots = (_counted(number, what) for what, number in parts)
    held = good if verdict.records else "no records"
    sentences = [f"The journal of {member} is sound: {held} in {blocks}, {segments} and {snapshots}."]
    if verdict.torn:
        sentences.append(
            f"Its last {verdict.torn} bytes are of a write that was never acknowledged; the next start cuts "
            f"them off."
        )
    if verdict.live:
        sentences.append(f"{member} runs: what it is writing now was not checked.")
    return " ".join(sentences)


def is_untouched(done: Repaired) -> bool:
    """True if a repair found nothing to do."""
    return not done.moved and not has_losses(done) and done.history_lost is None


def has_losses(done: Repaired) -> bool:
    """True if records are lost with everything they did."""
    return done.lost is not None or done.lost_open


def repaired_words(member: str, done: Repaired) -> str:
    """Describe what a repair kept of a member's journal, and what it lost."""
    kept = "no record" if done.kept is None else _range(*done.kept)
    if is_untouched(done):
        return f"Nothing is wrong with the journal of {member} ({kept}); nothing was changed."
    base = f"snapshot {done.snapshot} and " if done.snapshot is not None else ""
    sentences = [f"The journal of {member} can be used again. Kept: {base}{kept}."]
    if done.lost is not None:
        more = ", and perhaps more: the end is too damaged to tell" if done.lost_open else ""
        sentences.append(f"Lost, with all they did: {_range(*done.lost)}{more}.")
    elif done.lost_open:
        sentences.append("The number of records lost behind them is unknown: the end is too damaged.")
    else:
        sentences.append("Nothing is lost: the state is complete.")
    if done.history_lost is not None:
        sentences.append(
            f"The snapshot keeps what {_range(*done.history_lost)} did; these records are unreadable now."
        )
    if done.moved:
        sentences.append(f"Set aside in {done.moved_to}, inside the journal: {', '.join(done.moved)}.")
    return " ".join(sentences)


def _range(first: int, last: int) -> str:
    return f"record {first}" if first == last else f"records {first} to {last}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
