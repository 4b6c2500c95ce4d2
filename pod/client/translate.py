"""What goes over the wire, as an in-process pod has it: results, errors, prompts."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from pod.errors import PodBusy, PodClosed, PodError, UnknownApproval
from pod.protocol import RunEnd
from pod.protocol.methods import Answer
from worker.items import Image, UserMessage

from .errors import RemoteError

if TYPE_CHECKING:
    from pod.runs import RunResult

A = TypeVar("A", bound=Answer)
_KINDS: dict[str, type[PodError]] = {
    "busy": PodBusy,
    "closed": PodClosed,
    "unknown_approval": UnknownApproval,
}


def raised(error: RemoteError) -> PodError:
    """Return the error that an in-process pod would have raised, where it is one of those."""
    kind = _KINDS.get(error.code)
    return error if kind is None else kind(error.message, hint=error.hint)


def read(model: type[A], answer: dict[str, Any]) -> A:
    """Return an answer as its model. Raises `RemoteError` for one that is none."""
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        message = f"the pod's answer cannot be read: {where}: {problem['msg']}"
        raise RemoteError("unreadable", message) from error


def run_params(message: UserMessage) -> dict[str, Any]:
    """Return a message as the parameters of `run`."""
    images = [
        {
            "media_type": part.media_type,
            "data": base64.b64encode(part.data).decode("ascii"),
        }
        for part in message.parts
        if isinstance(part, Image)
    ]
    params: dict[str, Any] = {"input": message.text, "uid": message.uid}
    return params | {"images": images} if images else params


def result_of(end: RunEnd) -> RunResult:
    """Return a run's end as the result that an in-process pod gives."""
    from pod.runs import RunResult
    from worker.llm.types import Usage

    told = end.usage
    usage = (
        Usage()
        if told is None
        else Usage(told.input_tokens, told.output_tokens, told.cache_read, told.cache_write)
    )
    error = end.error
    return RunResult(
        outcome=end.outcome,
        text=end.text or "",
        usage=usage,
        cost=end.cost,
        session_id=end.session_id,
        requests=end.requests,
        message=end.message or "",
        error=error,
        exception=RemoteError(error.code, error.message, hint=error.hint or "") if error else None,
    )
