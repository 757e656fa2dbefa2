"""What other rooms need to mount a path of their own at a door: how to answer, and how to guard it."""

from hanse.live.door.gate import guarded
from hanse.live.door.operations import VIEW
from hanse.live.door.replies import RefusedError, json_answer

__all__ = ["VIEW", "RefusedError", "guarded", "json_answer"]
