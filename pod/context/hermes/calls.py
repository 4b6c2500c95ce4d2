"""`call_llm` and `async_call_llm`: how plugins ask a model, under the names that Hermes gave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from worker.llm.types import RequestOptions

from .chat_shapes import Completion, llm_request
from .completion import DEFAULT_TIMEOUT_S, CallRefused, PluginCall
from .config import config_at
from .runtime import HermesRuntime, current_runtime, is_ambiguous

_WHICH_POD = (
    "several pods of this process have this engine, and a thread that it started by itself belongs "
    "to none of them: start it with contextvars.copy_context().run"
)
_NO_POD = (
    "call_llm needs a running pod, and there is none: outside of a pod there is no model to ask "
    "(pod.context.hermes.install() alone gives none)"
)


def call_llm(task: str | None = None, *, messages: Sequence[Any], **asked: Any) -> Completion:  # noqa: ANN401  whatever plugins pass
    """Return a model's answer to `messages`; blocks.

    The pod's provider is asked, for `model`, else the model of the task, else the pod's own. Also
    heeded: `temperature`, `max_tokens`, `timeout` (seconds), `tools`, the `effort` of
    `reasoning_config`; `route_info`, a dict, is told who answered. Where to reach a model, and with
    which key, is the manifest's to say: `provider`, `base_url`, `api_key` and the like change
    nothing.

    Raises:
        CallRefused: There is no pod, or it has ended; or which one is meant cannot be told; or this
            is its event loop.
        TimeoutError: No answer within `timeout`, that of the task, or 120 seconds.
        ValueError: `messages` cannot be sent, or `stream` is asked for.
        WorkerError: The provider failed.
    """
    runtime = _runtime()
    answer = runtime.completions.complete(_call(runtime, task, messages, asked))
    return _routed(answer, runtime, asked.get("route_info"))


async def async_call_llm(
    task: str | None = None,
    *,
    messages: Sequence[Any],
    **asked: Any,  # noqa: ANN401  whatever plugins pass
) -> Completion:
    """Return a model's answer as `call_llm` does; the event loop that this runs on goes on."""
    runtime = _runtime()
    answer = await runtime.completions.acomplete(_call(runtime, task, messages, asked))
    return _routed(answer, runtime, asked.get("route_info"))


def _runtime() -> HermesRuntime:
    runtime = current_runtime()
    if runtime is None:
        raise CallRefused(_NO_POD)

    if is_ambiguous():
        raise CallRefused(_WHICH_POD)

    return runtime


def _call(
    runtime: HermesRuntime, task: str | None, messages: Sequence[Any], asked: Mapping[str, Any]
) -> PluginCall:
    if asked.get("stream"):
        raise ValueError("call_llm(stream=True) is not served: the answer comes in one piece")

    options = RequestOptions(
        max_tokens=asked.get("max_tokens"),
        temperature=asked.get("temperature"),
        reasoning_effort=config_at(asked.get("reasoning_config"), "effort") or None,
    )
    return PluginCall(
        request=llm_request(messages, asked.get("tools"), options),
        task=task or "",
        model=asked.get("model") or "",
        timeout_s=_timeout_s(runtime, task, asked.get("timeout")),
    )


def _timeout_s(runtime: HermesRuntime, task: str | None, asked: object) -> float:
    own = config_at(runtime.config, "auxiliary", task or "", "timeout")
    numbers = [one for one in (asked, own) if isinstance(one, int | float) and one > 0]
    return float(numbers[0]) if numbers else DEFAULT_TIMEOUT_S


def _routed(answer: Completion, runtime: HermesRuntime, route_info: object) -> Completion:
    """Return `answer`, after noting in the caller's own dict who gave it."""
    if isinstance(route_info, dict):
        provider = config_at(runtime.config, "model", "provider", default="")
        route_info.update(provider=provider, model=answer.model)

    return answer
