"""What an engine is told of the model, of the session, and of where it lives."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen


@frozen
class ModelFacts:
    """The model in force."""

    model: str
    context_length: int
    provider: str = ""
    thresholds: Mapping[str, float] = field(factory=dict)
    """By part of a model's name: at which share of its window to compact."""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    """Never shown, logged or kept; engines that ask a model by themselves need it."""
    api_mode: str = ""
    """The dialect, as Hermes calls it; empty for one that it has no name for."""


@frozen
class Beginning:
    """A session that an engine is to hear of."""

    session_id: str
    hermes_home: str = ""
    """The engine's own folder."""
    conversation_id: str = ""
    """The same through compactions and launches; another one for each branch."""
    platform: str = "cli"
    left: str = ""
    """The session that was left for this one, or that it branched off from; empty if none was."""
    carries_over: bool = False
    """Whether what was said in that session is part of this one."""
    is_first: bool = True
    """Whether the engine comes to life with it; else it lived through the session that was left."""
