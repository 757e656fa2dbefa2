"""The policy process loads the model that the sizer names: ours, or one of another package."""

import socket
from collections.abc import Iterator

import pytest

from hanse.learning.edge.network.advisor import EdgeModel
from hanse.live.policy_process.models import MODELS, AdviceModel, load_model
from hanse.live.policy_process.process import FRAME_HEADER, decode_answer, encode_frame, serve
from hanse.model.advice import Advice, AdviceRequest
from hanse.model.effects import RequestAdvice
from hanse.registry import SIZERS

QUESTION = RequestAdvice(7, AdviceRequest((), (), ()))


class Silent:
    """A model without advice."""

    def advise(self, request: AdviceRequest) -> tuple[Advice, ...]:
        assert not request.waiting
        return ()


@pytest.fixture
def models() -> Iterator[None]:
    def load() -> AdviceModel:
        return Silent()

    removers = [MODELS.register("silent", load), MODELS.register("torn", lambda: "its file is torn")]
    yield
    for remove in removers:
        remove()


@pytest.mark.parametrize("name", SIZERS.shipped)
def test_a_sizer_that_takes_advice_names_a_model_that_is_there(name: str) -> None:
    sizer = SIZERS.get(name)
    assert sizer.takes_advice == bool(sizer.model)
    assert not sizer.model or MODELS.find_problem(sizer.model) == ""


def test_the_shipped_model_is_the_edge_network() -> None:
    assert isinstance(load_model("edge"), EdgeModel)


@pytest.mark.usefixtures("models")
def test_a_model_of_another_package_answers() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(encode_frame(QUESTION))
        ours.shutdown(socket.SHUT_WR)
        serve(theirs, "silent")
        answered = ours.recv(1 << 16)
    (size,) = FRAME_HEADER.unpack_from(answered)
    answer = decode_answer(answered[FRAME_HEADER.size : FRAME_HEADER.size + size])
    assert (answer.number, answer.choices) == (7, ())


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(("name", "said"), [("torn", "its file is torn"), ("none", "no learned model")])
def test_a_model_that_cannot_be_used_ends_the_process_with_the_reason(name: str, said: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(SystemExit, match=said):
        serve(theirs, name)
