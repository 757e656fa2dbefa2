"""What other rooms need to mount a path of their own at a door: how to answer, and how to guard it."""

from hanse.live.http.auth_middleware import guarded
from hanse.live.http.operations import VIEW
from hanse.live.http.responses import RefusedError, json_answer

__all__ = ["VIEW", "RefusedError", "guarded", "json_answer"]
