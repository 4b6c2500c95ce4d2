"""Conversations beyond the fixed ones: searched for and made smaller by hypothesis, if installed.

Without it, those of the first seeds, which are the same in every run. So is what hypothesis tries,
but for the numbers that it takes from the modules which happen to be loaded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib.util import find_spec

from attrs import define

from .conversations import ENDINGS, SCRIPTS, Conversation, Turn, seeded
from .results import Broken


def conversations_to_try(
    look: Callable[[Conversation], None],
    examples: int,
    *,
    reductions: int = 60,
    search: bool | None = None,
) -> None:
    """Call `look` with so many conversations. Raises the `Broken` that it raises.

    Args:
        look: Raises `Broken` for what it finds.
        examples: How many are tried.
        reductions: How many more are tried to make smaller what was found.
        search: By hypothesis; None: if it is installed.
    """
    if search is None:
        search = find_spec("hypothesis") is not None

    if search and examples > 0:
        _searched(look, examples, reductions)
        return

    for seed in range(examples):
        look(seeded(seed))


def _searched(look: Callable[[Conversation], None], examples: int, reductions: int) -> None:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st
    from hypothesis.errors import Flaky

    sizes = st.lists(st.integers(0, 400), min_size=1, max_size=3).map(tuple)
    turns = st.builds(
        Turn,
        words=st.integers(1, 80),
        rounds=st.lists(sizes, max_size=3).map(tuple),
        answer_words=st.integers(1, 100),
        script=st.integers(0, SCRIPTS - 1),
    )
    conversations = st.builds(
        Conversation,
        turns=st.lists(turns, min_size=1, max_size=25).map(tuple),
        ending=st.sampled_from(ENDINGS),
        echoes=st.booleans(),
        reuses_ids=st.booleans(),
        has_summary=st.booleans(),
    )
    search = _Search(look, reductions)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(conversations)
    def tried_on(conversation: Conversation) -> None:
        search.look_at(conversation)

    # What an engine once did wrong is wrong, also where it does not do it again (`Flaky`).
    with contextlib.suppress(Broken, Flaky, _Enough):
        tried_on()

    if search.smallest is not None:
        raise search.smallest


class _Enough(BaseException):
    """Ends a search; no `Exception`, which hypothesis would take for one more thing found."""


@define(eq=False)
class _Search:
    """Shows conversations to `look`, and keeps the smallest that it found broken."""

    look: Callable[[Conversation], None]
    _left: int
    smallest: Broken | None = None

    def look_at(self, conversation: Conversation) -> None:
        """Look at one more. Raises what `look` raises, and `_Enough` in the end."""
        if self.smallest is not None:
            self._left -= 1
        if self._left < 0:
            raise _Enough

        try:
            self.look(conversation)
        except Broken as caught:
            known = self.smallest
            if known is None or len(caught.rows or ()) <= len(known.rows or ()):
                self.smallest = caught

            raise
