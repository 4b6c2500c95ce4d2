"""The manifest as a whole, and its small sections; the larger ones have modules of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from ._expansion import PathText
from ._patterns import NAME_LENGTH, POD_NAME
from ._section import MOST, Positive, Rule, Seconds, Section, Several
from .schema_compaction import CompactionSection, ContextSection
from .schema_memory import MemorySection
from .schema_provider import ProviderSection
from .schema_tools import HookSection, PermissionsSection, ToolsSection

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Cost = Annotated[float, Field(gt=0, le=MOST, allow_inf_nan=False)]


class PodSection(Section):
    """Who the pod is."""

    name: Annotated[str, Field(pattern=POD_NAME, max_length=NAME_LENGTH)]
    """The pod's name: also its socket and runtime name."""
    instructions: Several[PathText] = ()
    """Files appended to the system prompt; read again at each launch, kept over compactions."""


class WorkerSection(Section):
    """How requests are made and runs are bounded."""

    system_prompt: str | None = None
    """What the model is told first."""
    system_prompt_file: PathText | None = None
    """A file that holds it instead."""
    max_tokens: Positive | None = None
    """The most tokens of one answer; default: the provider's, 4096 where it asks for a number."""
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    """How much chance is in the answers, 0 to 2; default: the provider's."""
    reasoning_effort: ReasoningEffort | None = None
    """How long the model thinks, where it can be told; default: the provider's."""
    max_requests: Positive = 200
    """The most requests of one run."""
    tool_output_max_bytes: Positive = 65536
    """The most bytes one tool result brings into the context; the log has all of it."""
    tool_timeout_seconds: Seconds = 120
    """How long a tool may take before its result is an error."""

    @classmethod
    def broken_rules(cls, given: Mapping[str, object]) -> Iterator[Rule]:
        """Yield the second system prompt."""
        if given.get("system_prompt") is not None and given.get("system_prompt_file") is not None:
            yield "system_prompt_file", "only one of it and system_prompt may be given"


class Budget(Section):
    """Limits; one that is reached ends the run with the outcome `limit_reached`."""

    requests: Positive | None = None
    """The most requests."""
    tokens: Positive | None = None
    """The most tokens, in and out together."""
    cost: Cost | None = None
    """The most money, in US dollars; refused where the price of a model is not known."""
    seconds: Seconds | None = None
    """The longest time."""


class BudgetsSection(Section):
    """What may be spent."""

    run: Budget = Budget()
    """By one run."""
    session: Budget = Budget()
    """By a session, all its runs together."""


class SessionSection(Section):
    """Where the history is kept, and how safely."""

    store: PathText | None = None
    """The folder of the session logs; default: `sessions/` under the home."""
    durability: Literal["fsync", "flush"] = "fsync"
    """`fsync`: an entry survives a power cut once acknowledged; `flush`: a crash of the process."""


class PodManifest(Section):
    """Everything a pod is launched from."""

    pod: PodSection
    """Who the pod is."""
    provider: ProviderSection
    """Which model answers."""
    worker: WorkerSection = WorkerSection()
    """How requests are made and runs are bounded."""
    tools: ToolsSection | None = None
    """What the model can do; absent: nothing but what the engine offers."""
    hooks: Several[HookSection] = ()
    """Functions asked at points of every run, in this order."""
    permissions: PermissionsSection = PermissionsSection()
    """What tools may do unasked."""
    budgets: BudgetsSection = BudgetsSection()
    """What may be spent."""
    compaction: CompactionSection | None = None
    """When history is pruned or compacted; absent: only by hand."""
    context: ContextSection = ContextSection()
    """Which engine decides what is sent to the model."""
    memory: MemorySection | None = None
    """What is remembered beyond one session; absent: nothing."""
    session: SessionSection = SessionSection()
    """Where the history is kept."""


def manifest_json_schema() -> dict[str, JsonValue]:
    """Return the JSON Schema of a manifest, for editors and for other programs."""
    schema = PodManifest.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Pod manifest",
    }
