"""The Worker of a pod, made of what its manifest came to."""

from __future__ import annotations

from pod.launching.memory_setup import SessionMemory, not_taken
from pod.launching.preparing import Prepared
from worker.llm.types import RequestOptions
from worker.ports import Ports
from worker.tools import Tool
from worker.worker import Worker, WorkerConfig


def make_worker(
    prepared: Prepared,
    ports: Ports,
    engine_tools: list[Tool],
    memory: SessionMemory,
    *,
    conversation: str,
) -> Worker:
    """Return the Worker of a pod, its history still empty.

    An engine's tool whose name is taken by one of the manifest's is left out, and one of the memory
    whose name either has. `conversation` names whatever its requests have their beginning in common
    with.
    """
    manifest = prepared.loaded.manifest
    settings, budget = manifest.worker, manifest.budgets.run
    own = {tool.name for tool in prepared.tools}
    extra = [tool for tool in engine_tools if tool.name not in own]
    offered = [*prepared.tools, *extra]
    taken = {tool.name for tool in offered}
    limits = [n for n in (settings.max_requests, budget.requests) if n is not None]
    return Worker(
        prepared.provider.client,
        system_prompt=memory.system_prompt,
        tools=[*offered, *not_taken(prepared.memory, memory.tools, taken)],
        hooks=prepared.hooks,
        config=WorkerConfig(
            options=_options(prepared, conversation),
            max_requests=min(limits) if limits else None,
            max_tokens_used=budget.tokens,
            max_cost=budget.cost,
            max_seconds=budget.seconds,
            tool_timeout_s=settings.tool_timeout_seconds,
            tool_output_max_bytes=settings.tool_output_max_bytes,
            native_schema=prepared.provider.takes_schema,
            yield_on_overflow=True,
        ),
        ports=ports,
    )


def _options(prepared: Prepared, conversation: str) -> RequestOptions:
    settings = prepared.loaded.manifest.worker
    return RequestOptions(
        max_tokens=_output_cap(prepared),
        temperature=settings.temperature,
        reasoning_effort=settings.reasoning_effort,
        cache_key=conversation,
    )


def _output_cap(prepared: Prepared) -> int | None:
    """Return the most tokens of one answer: what is asked for, as far as every model can."""
    asked = prepared.loaded.manifest.worker.max_tokens
    caps = [card.max_output_tokens for card in prepared.provider.models]
    known = [cap for cap in caps if cap is not None]
    return asked if asked is None or not known else min(asked, *known)
