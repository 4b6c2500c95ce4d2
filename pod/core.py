"""The parts of one running pod, held together: what its operations work on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define

from manifests import CompactionSection, LoadedManifest
from pod.bus import EventBus
from pod.compaction.plan import Sizes
from pod.compaction.preview import sizes_of
from pod.compaction.prune_hook import PruneHook
from pod.compaction.state import CompactionMemory
from pod.compaction.summarizer import Summarizer
from pod.compaction.thresholds import Thresholds, thresholds_for
from pod.context.host import EngineHost
from pod.context.loader import LoadedPlugin
from pod.context.plugin_facts import Scene
from pod.context.plugin_host import PluginHost
from pod.home import Home
from pod.journal import SessionJournal, in_thread
from pod.launching.model_facts import ModelDirectory
from pod.memory.host import MemoryHost
from pod.model_table import PriceList
from pod.protocol import Alert, EventData, SessionChanged, Status
from pod.protocol.events import State
from session_store import FileSessionStore, Session
from worker.items import Item
from worker.prune import apply_prune
from worker.worker import Worker

LEARNED_WINDOWS = "learned_windows"
"""What a session's config calls the windows that providers named when a prompt did not fit: by
`provider/model`, as another may stand in."""


@define(eq=False)
class PodCore:
    """One pod's parts. The operations of `pod.runs` and `pod.compaction.compactor` work on it."""

    loaded: LoadedManifest
    home: Home
    store: FileSessionStore
    bus: EventBus
    journal: SessionJournal
    worker: Worker
    host: EngineHost
    memory_host: MemoryHost
    """Of what is remembered beyond the session; `memory` is that of compactions."""
    thresholds: Thresholds
    memory: CompactionMemory
    summarizer: Summarizer
    prune: PruneHook | None
    config: dict[str, object]
    prices: PriceList
    """What requests to any of the pod's models cost, summaries included."""
    models: ModelDirectory
    """What the engine is told of the pod's models."""
    plugin: LoadedPlugin | None
    """What the engine comes from, with all that it registered; None for the built-in."""
    plugin_host: PluginHost | None
    """Calls what the plugin registered beside its engine."""
    moves_pointer: bool
    """Whether the pod's pointer follows this session: it never follows a fork."""
    state: State = "idle"

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.loaded.manifest.pod.name

    @property
    def session(self) -> Session:
        """The session that is being written."""
        return self.journal.session

    @property
    def compaction(self) -> CompactionSection:
        """What the manifest says of compaction, or the defaults that manual compaction has."""
        return self.loaded.manifest.compaction or CompactionSection()

    async def learn_window(self, window: int) -> None:
        """Take a window that the provider named, and note it for the launches to come."""
        self.take_window(window)
        await self.journal.append(("config_changed", {"config": self.config}))

    async def tell_engine_of_model(self) -> None:
        """Tell the engine which model is in force, and its window, where that has changed."""
        facts = self.models.facts(self.worker.client, learned_windows(self.config))
        await self.host.model_is(facts)

    def would_overflow(self, tokens: int) -> bool:
        """Tell whether a prompt of that size does not fit the window, where that is known."""
        window = self.thresholds.window
        return window is not None and tokens >= window

    def take_window(self, window: int) -> None:
        """Hold thresholds to a window that a provider named, in this launch or an earlier one."""
        client = self.worker.client
        learned = learned_windows(self.config) | {f"{client.provider}/{client.model}": window}
        self.config = {**self.config, LEARNED_WINDOWS: learned}
        self.thresholds = thresholds_for(
            self.loaded.manifest.compaction,
            provider=client.provider,
            model=client.model,
            window=window,
        )

    def forked_away(self, old_id: str, new_id: str) -> None:
        """Tell that the log was changed underneath, and that the pod goes on in a fork."""
        self.moves_pointer = False
        self.host.moved(old_id, new_id)
        self.memory_host.moved(old_id, new_id)
        message = (
            f"session {old_id} was changed by somebody else while this pod wrote it; the pod goes "
            f"on in a fork, {new_id}, and the pod's pointer stays"
        )
        self.publish(Alert(level="warning", message=message))
        self.publish(
            SessionChanged(old_session_id=old_id, new_session_id=new_id, reason="head_mismatch")
        )

    def publish(self, data: EventData, ref: tuple[str, int] | None = None) -> None:
        """Publish an event."""
        self.bus.publish(data, ref)

    def masked(self, text: str) -> str:
        """Return a text that came from outside without known secrets."""
        return self.journal.masker.mask(text)

    def set_state(self, state: State) -> None:
        """Note what the pod is doing, and tell it where that changed."""
        if state != self.state:
            self.state = state
            self.publish(Status(state=state))

    async def point_here(self) -> None:
        """Let the pod's pointer name the present session, unless that is below a fork."""
        if self.moves_pointer:
            name, session_id = self.name, self.session.session_id
            await in_thread(lambda: self.store.set_pointer(name, session_id))

    def scene(self) -> Scene:
        """Return what is going on, as a plugin is told of it."""
        worker = self.worker
        return Scene(self.session.session_id, worker.client.model, tuple(worker.history))

    def sizes(self) -> Sizes:
        """Return what no compaction can remove, in fitted tokens."""
        return sizes_of(self.worker)

    def tokens_of(self, history: Sequence[Item], watermark: int) -> int:
        """Return the fitted tokens of the prompt that a history would make."""
        return self.worker.meter.estimate(apply_prune(history, watermark))


def learned_windows(config: Mapping[str, object]) -> dict[str, int]:
    """Return the windows that a session's config has learned, by `provider/model`."""
    found = config.get(LEARNED_WINDOWS)
    named = found.items() if isinstance(found, Mapping) else ()
    return {str(name): window for name, window in named if isinstance(window, int)}
