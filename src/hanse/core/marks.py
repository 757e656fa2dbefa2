"""Names of the rare branches that the simulator must reach: coverage marks.

A mark proves that a branch which exists for some fault was really taken under that fault. Some marks of the
code are not listed: ``warden.stopped_stray`` (a runner reports an attempt that its warden has given up) came
up in only 3 of 1,000 seeds, too seldom to demand of every run, and ``broker.owes_word`` (an estate is adopted
twice before its first owner hears of it) in 12; ``broker.dependency_unknown`` (a job waits for one that no
broker ever accepted) and ``broker.dropped_duplicate`` (a job was submitted to two brokers) need clients that
the simulator does not have; and ``warden.news_held_back``, ``broker.heir_behind``, ``warden.estate_busy`` and
``warden.grants_full`` need thousands of things at once, which tests of their own make; so do those of the
guard (``broker.advice_guarded``, ``_put_aside``, ``_left_to_rule``), which needs many ends of one kind.
"""

from typing import Final

ALL: Final = (
    "broker.adopted_estate",
    "broker.adoption_abandoned",
    "broker.adoption_begun",
    "broker.adoption_refused",
    "broker.advice_absurd",
    "broker.advice_late",
    "broker.advice_stale",
    "broker.advice_taken",
    "broker.broke_gang",
    "broker.changed_heir",
    "broker.close_put_off",
    "broker.closed_estate",
    "broker.deadline_passed",
    "broker.dependency_failed",
    "broker.dropped_copies",
    "broker.end_of_old_attempt",
    "broker.estate_taken",
    "broker.founded_anew",
    "broker.gang_failed",
    "broker.gave_cluster_up",
    "broker.learned_from_peer",
    "broker.moved_task",
    "broker.outbid",
    "broker.refusal_of_old_attempt",
    "broker.refused_busy",
    "broker.refused_fenced",
    "broker.refused_no_room",
    "broker.refused_stale_round",
    "broker.rehomed_job",
    "broker.released_grant",
    "broker.requeued_preempted",
    "broker.requeued_unstarted",
    "broker.requeued_withdrawn",
    "broker.resized",
    "broker.restarted",
    "broker.retried",
    "broker.submission_repeated",
    "broker.spared_grant",
    "broker.view_gap",
    "broker.withdrew_unstarted",
    "runner.ended_lapsed_estate",
    "runner.held_its_lease",
    "runner.refused_without_lease",
    "runner.rejoined",
    "runner.tasks_outlived_it",
    "warden.adoption_refused",
    "warden.asked_runner_to_rejoin",
    "warden.bound_expired_lease",
    "warden.broker_silent",
    "warden.closed_estate",
    "warden.end_of_unknown_attempt",
    "warden.estate_adopted",
    "warden.estate_closed",
    "warden.estate_lapsed",
    "warden.granted_gang",
    "warden.hold_served",
    "warden.holds_room",
    "warden.lapsed_run",
    "warden.lease_expired",
    "warden.lost_runner",
    "warden.preempted",
    "warden.refused_bind",
    "warden.refused_fenced",
    "warden.refused_no_room",
    "warden.refused_stale_round",
    "warden.restarted",
    "warden.room_withheld",
    "warden.round_never_began",
    "warden.run_vanished",
    "warden.runner_without_lease",
    "warden.substituted",
    "warden.told_ends_again",
)
"""Every mark that the seeds of the CI run must reach together."""
