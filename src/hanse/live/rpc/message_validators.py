"""Table of the validators of messages, one for each type.

``validation`` gives their purpose and the rule by which bounds are chosen. The validators stand in modules by
sender and receiver.
"""

from typing import Final

from hanse.live.rpc.broker_to_broker_validators import BROKER_TO_BROKER_VALIDATORS
from hanse.live.rpc.broker_to_warden_validators import BROKER_TO_WARDEN_VALIDATORS
from hanse.live.rpc.failover_validators import FAILOVER_VALIDATORS
from hanse.live.rpc.runner_validators import RUNNER_VALIDATORS
from hanse.live.rpc.validation_context import ValidationContext, Validator
from hanse.live.rpc.warden_to_broker_validators import WARDEN_TO_BROKER_VALIDATORS
from hanse.model import messages as m


def _ack(_body: m.Ack, context: ValidationContext, source: str) -> str | None:
    for group in (context.brokers, context.clusters, context.runners):
        if group is None or source in group:
            return None
    return "an unknown sender"


VALIDATORS: Final[dict[type, Validator]] = {
    **BROKER_TO_WARDEN_VALIDATORS,
    **WARDEN_TO_BROKER_VALIDATORS,
    **BROKER_TO_BROKER_VALIDATORS,
    **RUNNER_VALIDATORS,
    **FAILOVER_VALIDATORS,
    m.Ack: _ack,
}
"""One for each type of message; a test checks that it is complete."""
