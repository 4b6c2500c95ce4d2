"""Whether a request begins with what was sent before it, block by block, cache marks aside.

A conversation grows by an answer and what follows it. So what stands before a request's last answer
is, block for block, a whole request that was sent before: it was what that answer answered. This
holds for forks, rewound and resumed conversations as well, and nothing needs to be known of them.

Two things move the prefix on purpose and are known by what they leave behind: a compaction, whose
conversation starts with a summary and has fewer blocks than it had, and a prune, which shortens
results of tools and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from attrs import define, field, frozen

from worker.llm.schemes.chat.joiner import BRIDGE
from worker.prune import PRUNED_SUMMARY
from worker.text import SUMMARY_LABEL

from .checker import Api
from .shared import dicts

_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})


@frozen
class Block:
    """A part of a prompt: who it is of, and its JSON in the order received."""

    role: str
    """`tools`, `system`, `user`, `assistant`, `tool` or `bridge`."""
    text: str


@define
class Prefixes:
    """The requests of one test, and whether each begins with one before it."""

    _seen: dict[int, set[tuple[Block, ...]]] = field(factory=dict)
    _starts: dict[Block | None, int] = field(factory=dict)
    """What conversations start with, and how many blocks the longest request had that does."""
    _clients: set[object] = field(factory=set)

    def check(
        self, api: Api, body: Mapping[str, object], client: object | None = None
    ) -> str | None:
        """Take a request of `client` (None: unknown) and return what is wrong with its prefix."""
        blocks = tuple(blocks_of(api, body))
        start = next((block for block in blocks if block.role == "user"), None)
        is_new = start not in self._starts if client is None else client not in self._clients
        before = _before_last_answer(blocks)
        problem = None
        is_known = is_new or blocks in self._seen.get(len(blocks), ())
        if before is not None and not (
            is_known
            or self._was_sent(before)
            or self._goes_on(blocks)
            or self._is_compacted(start, before)
        ):
            problem = self._what_moved(before)
        self._seen.setdefault(len(blocks), set()).add(blocks)
        self._starts[start] = max(len(blocks), self._starts.get(start, 0))
        if client is not None:
            self._clients.add(client)
        return problem

    def _was_sent(self, blocks: tuple[Block, ...]) -> bool:
        sent = self._seen.get(len(blocks), set())
        return blocks in sent or any(_is_pruned(blocks, earlier) for earlier in sent)

    def _goes_on(self, blocks: tuple[Block, ...]) -> bool:
        """Whether it is an earlier request and what was said since: that one's answer was none."""
        last = len(blocks) - next(
            n for n, b in enumerate(reversed(blocks)) if b.role == "assistant"
        )
        return any(
            blocks[: size - 1] == sent[:-1] and _is_grown(blocks[size - 1], sent[-1])
            for size in range(last + 1, len(blocks) + 1)
            for sent in self._seen.get(size, ())
        )

    def _is_compacted(self, start: Block | None, before: tuple[Block, ...]) -> bool:
        if start is None or not _is_summary(start):
            return False

        return start not in self._starts or len(before) < self._starts[start]

    def _what_moved(self, blocks: tuple[Block, ...]) -> str:
        """Name the first block that differs from the request that is most like this one."""
        common = 0
        for sent in (one for same in self._seen.values() for one in same):
            pairs = zip(sent, blocks, strict=False)
            same = next(
                (n for n, (a, b) in enumerate(pairs) if a != b), min(len(sent), len(blocks))
            )
            common = max(common, same)

        if common == len(blocks):
            return f"what stands before the last answer ({common} blocks) was sent with more behind"

        moved = blocks[common]
        return (
            f"the first {common} blocks were sent before, as they are; then comes, of"
            f" {moved.role}, what was not: {moved.text[:300]}"
        )


def blocks_of(api: Api, body: Mapping[str, object]) -> Iterator[Block]:
    """The blocks of a request in the order of its prompt, without cache marks."""
    yield from (_block("tools", tool) for tool in dicts(body.get("tools")))
    for key in ("system", "instructions", "systemInstruction"):
        if key in body:
            yield from _parts("system", body[key])
    for message in dicts(
        body.get({"responses": "input", "gemini": "contents"}.get(api, "messages"))
    ):
        role = _role(message)
        held = message.get("content", message.get("parts"))
        yield from _parts(role, held)
        rest = {k: v for k, v in message.items() if k not in ("content", "parts", "role", "type")}
        for call in dicts(rest.pop("tool_calls", [])):
            yield _block(role, call)
        if rest:
            yield _block(role, rest)


def _parts(role: str, held: object) -> Iterator[Block]:
    if isinstance(held, list):
        for part in held:
            is_result = isinstance(part, dict) and (
                part.get("type") == "tool_result" or "functionResponse" in part
            )
            yield _block("tool" if is_result else role, part)
    elif held is not None:
        yield _block(role, held)


def _role(message: Mapping[str, object]) -> str:
    kind = message.get("type")
    if kind in ("function_call", "reasoning"):
        return "assistant"
    if kind == "function_call_output":
        return "tool"

    role = str(message.get("role"))
    return {"model": "assistant", "developer": "system"}.get(role, role)


def _block(role: str, value: object) -> Block:
    if value == BRIDGE and role == "assistant":
        role = "bridge"  # words of ours, put where a template allows no user behind a tool
    plain = _unmarked(value)
    if isinstance(plain, dict) and plain.keys() == {"type", "text"} and plain["type"] == "text":
        plain = plain["text"]  # a text alone is shorthand for one part of it, and means the same
    return Block(role, json.dumps(plain, ensure_ascii=False))


def _unmarked(value: object) -> object:
    match value:
        case dict():
            return {k: _unmarked(v) for k, v in value.items() if k not in _MARKS}
        case list():
            return [_unmarked(one) for one in value]
        case _:
            return value


def _before_last_answer(blocks: tuple[Block, ...]) -> tuple[Block, ...] | None:
    """What stands before the last run of the assistant's blocks; None where there is none."""
    end = len(blocks)
    while end and blocks[end - 1].role != "assistant":
        end -= 1
    while end and blocks[end - 1].role == "assistant":
        end -= 1
    return blocks[:end] if any(block.role == "assistant" for block in blocks) else None


def _is_grown(now: Block, then: Block) -> bool:
    """Whether a block is what it was, or a text of the user that another was joined to."""
    if now == then:
        return True

    both = json.loads(now.text), json.loads(then.text)
    is_text = all(isinstance(one, str) for one in both)
    return now.role == then.role == "user" and is_text and both[0].startswith(both[1])


def _is_summary(block: Block) -> bool:
    return json.dumps(SUMMARY_LABEL, ensure_ascii=False)[1:-1] in block.text


def _is_pruned(blocks: tuple[Block, ...], earlier: tuple[Block, ...]) -> bool:
    """Whether `blocks` are the `earlier` ones with results of tools shortened, and only that."""
    return all(
        now == then or (now.role == then.role == "tool" and _is_shortened(now.text, then.text))
        for now, then in zip(blocks, earlier, strict=True)
    )


def _is_shortened(now: str, then: str) -> bool:
    mine, old = json.loads(now), json.loads(then)
    return _shrank(mine, old)


def _shrank(now: object, then: object) -> bool:
    match now, then:
        case str(), str():
            return now == PRUNED_SUMMARY or then.startswith(now)
        case dict(), dict():
            return now.keys() == then.keys() and all(_shrank(now[k], then[k]) for k in now)
        case list(), list():
            return len(now) <= len(then) and all(map(_shrank, now, then))
        case str(), list():
            first = then[0] if then and isinstance(then[0], dict) else {}
            return _shrank(now, first.get("text", ""))
        case _:
            return now == then
