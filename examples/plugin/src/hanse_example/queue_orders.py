"""Queue orders of the example."""

from hanse.model.messages import QueueKey
from hanse.policy.interface import JobFacts


class TenantShare:
    """Order by the share of the league that the tenant uses (its dominant share), then by arrival."""

    name = "tenant-share"
    follows_progress = False
    follows_usage = True

    def key(self, facts: JobFacts) -> QueueKey:
        """Return the share and the arrival."""
        return (facts.tenant_usage, facts.accepted_at)
