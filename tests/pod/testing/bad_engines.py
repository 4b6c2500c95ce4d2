"""Engines with one fault each, and the check that must catch it."""

from __future__ import annotations

import itertools
import json
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from tests.pod.testing.good_engine import SUMMARY, Good, size_of, text_of

Row = dict[str, Any]
Rows = list[Row]


@frozen
class Bad:
    """A faulty engine: the check that is to catch it, and what that must find."""

    engine: type[Good]
    check: str
    found: str
    limit_s: float = 10.0


BAD: list[Bad] = []


def caught_by(check: str, found: str, limit_s: float = 10.0) -> Callable[[type[Good]], type[Good]]:
    def listed(engine: type[Good]) -> type[Good]:
        BAD.append(Bad(engine, check, found, limit_s))
        return engine

    return listed


class Compressing(Good):
    """Changes what a good engine's compress returned, where it did anything."""

    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        made = super().compress(messages, *args, **kwargs)
        return messages if made is messages else self.spoilt(made, messages)

    def spoilt(self, made: Rows, messages: Rows) -> Any:
        raise NotImplementedError


class Before(Good):
    """Looks at each row before it compresses."""

    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        for row in messages:
            self.look(row)

        return super().compress(messages, *args, **kwargs)

    def look(self, row: Row) -> None:
        raise NotImplementedError


# --- members


@caught_by("name", "one engine is called")
class ManyNames(Good):
    numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.name = f"engine-{next(self.numbers)}"


@caught_by("required-methods", "compress.*does not take")
class NeedsTheForce(Good):
    def compress(self, messages: Rows, *, session: str) -> Rows:
        return messages


@caught_by("hooks-take-what-they-are-given", "on_turn_complete.*does not take")
class StrictHook(Good):
    def on_turn_complete(self, messages: Rows, usage: Any = None) -> None:
        pass


@caught_by("attributes", "threshold_percent is 75")
class Percent(Good):
    threshold_percent = 75


@caught_by("host-may-assign", "setting last_prompt_tokens raised AttributeError")
class ReadOnly(Good):
    @property
    def last_prompt_tokens(self) -> int:
        return 0


@caught_by("status", "last_prompt_tokens -1")
class NegativeStatus(Good):
    def get_status(self) -> dict[str, Any]:
        return {**super().get_status(), "last_prompt_tokens": self.last_prompt_tokens}


@caught_by("status-message", "the message for 'preflight' is")
class ListMessage(Good):
    def get_automatic_compaction_status_message(self, **context: Any) -> Any:
        return ["compacting"]


# --- shape


@caught_by("returns-messages", r"compress\(\) returned None")
class ReturnsNone(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        return None


@caught_by("returns-messages", r"compress\(\) returned a tuple")
class ReturnsTuple(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return tuple(made)


@caught_by("returns-messages", "an empty list")
class ReturnsNothing(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return []


@caught_by("returns-messages", "holds a str")
class ReturnsText(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return ["a summary", *made[1:]]


@caught_by("returns-messages", r"compress\(\) did not return within", limit_s=0.5)
class BlocksForEver(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        threading.Event().wait(5)
        return messages


@caught_by("returns-messages", r"compress\(\) raised KeyboardInterrupt")
class Interrupts(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt


@caught_by("roles", "the role 'summary'")
class InventsRoles(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return [{**made[0], "role": "summary"}, *made[1:]]


@caught_by("json", "is no JSON")
class BytesInRows(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return [{**made[0], "raw": b"x"}, *made[1:]]


@caught_by("json", "is no JSON: the key 7")
class NumbersAsKeys(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return [{**made[0], "extra": {7: 1}}, *made[1:]]


@caught_by("readable", "content that is a dict")
class StrangeContent(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return [{**made[0], "content": {"text": "summary"}}, *made[1:]]


@caught_by("arguments-are-optional", "raised AttributeError")
class NeedsFocus(Good):
    def compress(self, messages: Rows, focus_topic: Any = None, **kwargs: Any) -> Rows:
        focus_topic.lower()
        return super().compress(messages, focus_topic=focus_topic, **kwargs)


@caught_by("rows-stay-as-they-were-returned", "changed by a later call")
class EditsLater(Compressing):
    last: tuple[Row, ...] = ()

    def spoilt(self, made: Rows, messages: Rows) -> Any:
        for row in self.last:
            row["content"] = "(gone)"

        self.last = tuple(made)
        return made


# --- pairs


@caught_by("no-unanswered-calls", "a call without its result")
class DropsAResult(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        place = next((n for n, row in enumerate(made) if row["role"] == "tool"), None)
        return made if place is None else [*made[:place], *made[place + 1 :]]


@caught_by("no-orphan-results", "a tool result without its call")
class SplitsPairs(Good):
    def cut(self, messages: Rows) -> int:
        half = len(messages) // 2
        return next((n for n in range(half, len(messages)) if messages[n]["role"] == "tool"), half)


@caught_by("host-takes-the-result", "a host refuses the result: a tool result has no call")
class ParatesPairs(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        place = next((n for n, row in enumerate(made) if row["role"] == "tool"), len(made))
        return [*made[:place], {"role": "user", "content": "(note)"}, *made[place:]]


# --- sizes


@caught_by("fewer-tokens-or-unchanged", "tokens of")
class Grows(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        note = {"role": "user", "content": "remember this " * 9_000}
        return [note, *made]


@caught_by("makes-progress", r"compress\(\) made")
class NeverShrinks(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        return messages


@caught_by("counts-its-compactions", "compression_count stayed")
class DoesNotCount(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        self.compression_count = 0
        return made


@caught_by("again-is-never-larger", "tokens of")
class PilesUp(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        if messages and text_of(messages[0]).startswith(SUMMARY):
            return [self.row("a summary of a summary"), *messages]

        return super().compress(messages, *args, **kwargs)


# --- the newest message


@caught_by("newest-user-message-is-kept", "lost the newest message")
class ForgetsTheQuestion(Good):
    def is_asked(self, row: Row) -> bool:
        return False


@caught_by("newest-user-message-is-kept", "lost the newest message")
class CutsTheQuestion(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return [{**row, "content": text_of(row)[:20]} for row in made]


@caught_by("newest-user-message-is-kept", "lost the newest message")
class SwallowsEverything(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return made[:1]


@caught_by("no-new-request-at-the-end", "the last row is a user row that the engine made")
class SummaryLast(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return [*made[1:], made[0]]


@caught_by("order-is-kept", "changed the order")
class TurnsAround(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        plain = [n for n, row in enumerate(made) if n and row["role"] == "assistant"]
        plain = [n for n in plain if "tool_calls" not in made[n]]
        if len(plain) < 2:
            return made

        turned = list(made)
        turned[plain[0]], turned[plain[1]] = made[plain[1]], made[plain[0]]
        return turned


# --- uids


@caught_by("no-uid-twice", "rows have one message_uid")
class DoublesUids(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return [{**made[0], "message_uid": made[-1].get("message_uid")}, *made[1:]]


@caught_by("uids-are-kept", "lost its identity")
class StripsUids(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return [{k: v for k, v in row.items() if k != "message_uid"} for row in made]


@caught_by("uids-are-kept", "has another identity")
class StripsCallUids(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return [{k: v for k, v in row.items() if k != "_tool_call_uids"} for row in made]


@caught_by("uids-stay-with-their-messages", "is on a user row")
class TakesAnothersUid(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        kept = {row.get("message_uid") for row in made}
        lost = [m for m in messages if m["role"] == "assistant" and m["message_uid"] not in kept]
        uid = lost[0]["message_uid"] if lost else "0" * 32
        return [{**made[0], "message_uid": uid}, *made[1:]]


@caught_by("uids-stay-with-their-messages", "message_uid 7")
class NumbersAsUids(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return [{**made[0], "message_uid": 7}, *made[1:]]


@caught_by("absorbed-uids-are-well-formed", "names its own row")
class AbsorbsItself(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        uid = "a" * 32
        return [{**made[0], "message_uid": uid, "_absorbed_message_uids": [uid]}, *made[1:]]


@caught_by("absorbed-uids-are-well-formed", "was not given")
class AbsorbsWhatIsNot(Compressing):
    def spoilt(self, made: Rows, messages: Rows) -> Any:
        return [{**made[0], "_absorbed_message_uids": ["b" * 32]}, *made[1:]]


@caught_by("merged-messages-are-named", "took in another message")
class MergesInSilence(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        users = [n for n, row in enumerate(messages) if self.is_asked(row)]
        if len(users) < 3:
            return messages

        first, last = messages[users[0]], messages[users[-1]]
        text = f"{text_of(first)}\n\n{text_of(last)}"
        self.compression_count += 1
        return [{**last, "content": text}, *messages[users[-1] + 1 :]]


@caught_by("uids-may-be-missing", "raised KeyError: 'message_uid'")
class NeedsUids(Before):
    def look(self, row: Row) -> None:
        row["message_uid"]


# --- hostile input


@caught_by("nothing", "raised IndexError")
class NeedsARow(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        messages[0]["role"]
        return super().compress(messages, *args, **kwargs)


@caught_by("one-row", "raised ValueError")
class NeedsTwo(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        if len(messages) == 1:
            raise ValueError("too short")

        return super().compress(messages, *args, **kwargs)


@caught_by("other-scripts", "raised UnicodeEncodeError")
class AsciiOnly(Before):
    def look(self, row: Row) -> None:
        text_of(row).encode("ascii")


@caught_by("huge-row", "raised MemoryError")
class NoRoom(Before):
    def look(self, row: Row) -> None:
        if len(text_of(row)) > 500_000:
            raise MemoryError("a row of half a megabyte")


@caught_by("lone-surrogates", "raised UnicodeEncodeError")
class StrictUtf8(Before):
    def look(self, row: Row) -> None:
        text_of(row).encode("utf-8")


@caught_by("unknown-keys", "raised TypeError")
class KnownKeysOnly(Before):
    def look(self, row: Row) -> None:
        def message(role: str, content: Any = None, tool_calls: Any = None, **more: Any) -> None:
            odd = set(more) - {"tool_call_id", "message_uid"}
            if any(not key.startswith("_") for key in odd):
                raise TypeError(f"unexpected {sorted(odd)}")

        message(**row)


@caught_by("images", "raised AttributeError")
class TextOnly(Before):
    def look(self, row: Row) -> None:
        (row.get("content") or "").strip()


@caught_by("malformed-identities", "raised AttributeError")
class TrustsUids(Before):
    def look(self, row: Row) -> None:
        row.get("_tool_call_uids", {}).values()


@caught_by("no-content", "raised TypeError")
class NeedsContent(Before):
    def look(self, row: Row) -> None:
        if "tool_calls" not in row:
            len(row.get("content"))


@caught_by("loose-ends", "raised KeyError")
class NeedsEveryCall(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        calls = {c["id"]: c for row in messages for c in row.get("tool_calls", ())}
        for row in messages:
            if row["role"] == "tool":
                calls[row["tool_call_id"]]

        return super().compress(messages, *args, **kwargs)


@caught_by("odd-roles-and-order", "raised ValueError")
class NeedsTurns(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        for one, other in itertools.pairwise(messages):
            if one["role"] == other["role"] == "user":
                raise ValueError("two user rows in a row")

        return super().compress(messages, *args, **kwargs)


@caught_by("malformed-calls", "raised JSONDecodeError")
class ParsesArguments(Before):
    def look(self, row: Row) -> None:
        for call in row.get("tool_calls", ()):
            json.loads(call["function"]["arguments"])


@caught_by("many-rows", "times as long as 1,000 rows", limit_s=40.0)
class Quadratic(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        for place in range(0, len(messages), 2):
            len(set(map(id, messages[:place])))

        return super().compress(messages, *args, **kwargs)


# --- when


@caught_by("should-compress-answers-every-size", "raised TypeError")
class NeedsASize(Good):
    def should_compress(self, prompt_tokens: Any = None) -> bool:
        return bool(prompt_tokens > self.threshold_tokens)


@caught_by("should-compress-is-monotone", "and not at")
class OnlyInBetween(Good):
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return 20_000 < (prompt_tokens or 0) < 90_000


@caught_by("should-compress-changes-nothing", "changed the engine's numbers")
class AskingCounts(Good):
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        self.last_prompt_tokens = prompt_tokens or 0
        return super().should_compress(prompt_tokens)


@caught_by("should-compress-changes-nothing", "says now yes, now no")
class EveryOtherTime(Good):
    asked = 0

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        self.asked += 1
        return super().should_compress(prompt_tokens) and self.asked % 2 == 0


@caught_by("other-questions", "has no last_real_prompt_tokens")
class DefersBlindly(Good):
    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        return True


@caught_by("other-questions", "changed the messages")
class PreflightEdits(Good):
    def should_compress_preflight(self, messages: Rows) -> bool:
        messages.clear()
        return False


@caught_by("prune-keeps-pairs", "parted pairs")
class PrunesRows(Good):
    def prune_tool_results_only(self, messages: Rows, current_tokens: Any = None) -> Any:
        return [m for m in messages if m["role"] == "tool"], 1


# --- usage and models


@caught_by("usage-is-taken", "last_prompt_tokens became 0")
class IgnoresUsage(Good):
    def update_from_response(self, usage: dict[str, Any]) -> None:
        pass


@caught_by("usage-may-be-odd", "raised KeyError: 'prompt_tokens'")
class TrustsUsage(Good):
    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage["prompt_tokens"]


@caught_by("window-is-taken", "context_length is 200000")
class OneWindow(Good):
    def update_model(self, model: str, context_length: int, **kwargs: Any) -> None:
        self.context_length, self.threshold_tokens = 200_000, 100_000


@caught_by("any-model-can-be-told", "raised AttributeError")
class KeyIsText(Good):
    def update_model(self, model: str, context_length: int, api_key: Any = "", **more: Any) -> None:
        api_key.strip()
        super().update_model(model, context_length)


@caught_by("any-model-can-be-told", "raised ZeroDivisionError")
class DividesByWindow(Good):
    def update_model(self, model: str, context_length: int, **more: Any) -> None:
        self.share = 1 / context_length
        super().update_model(model, context_length)


@caught_by("model-thresholds", "the trigger is")
class IgnoresThresholds(Good):
    @property
    def model_thresholds(self) -> dict[str, float]:
        return {}

    @model_thresholds.setter
    def model_thresholds(self, value: Any) -> None:
        pass


# --- sessions


@caught_by("callbacks-in-any-order", r"on_session_end\(\) raised AttributeError")
class NeedsAStart(Good):
    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        super().on_session_start(session_id, **kwargs)
        self.begun = session_id

    def on_session_end(self, session_id: str, messages: Rows) -> None:
        del self.begun


@caught_by("start-takes-more-or-less", "raised KeyError: 'hermes_home'")
class NeedsAHome(Good):
    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        kwargs["hermes_home"]


@caught_by("reset-sets-zero", "last_prompt_tokens is -1")
class ResetsToMinusOne(Good):
    def on_session_reset(self) -> None:
        super().on_session_reset()
        self.last_prompt_tokens = -1


@caught_by("reset-sets-zero", "after a reset last_prompt_tokens is")
class ForgetsToForget(Good):
    def on_session_reset(self) -> None:
        pass


@caught_by("compaction-boundary", "raised RuntimeError: another session")
class OneSessionOnly(Good):
    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        super().on_session_start(session_id, **kwargs)
        if (
            kwargs.get("boundary_reason") == "compression"
            and kwargs["old_session_id"] != session_id
        ):
            raise RuntimeError("another session")


@caught_by("end-leaves-its-input-alone", "changed the messages")
class EndEdits(Good):
    def on_session_end(self, session_id: str, messages: Rows) -> None:
        for row in messages:
            row["content"] = "ended"


# --- select_context and on_turn_complete


@caught_by("selection-can-be-sent", "returned an empty list")
class SelectsNothing(Good):
    def select_context(self, request_messages: Rows, **kwargs: Any) -> Any:
        return []


@caught_by("selection-can-be-sent", "a host refuses the selection")
class SelectsStrangers(Good):
    def select_context(self, request_messages: Rows, **kwargs: Any) -> Any:
        return [{"role": "critic", "content": "hm"}]


@caught_by("selection-leaves-its-input-alone", "changed the request")
class EditsTheRequest(Good):
    def select_context(self, request_messages: Rows, **kwargs: Any) -> Any:
        request_messages.pop(0)


@caught_by("selection-leaves-its-input-alone", "changed the conversation")
class EditsTheConversation(Good):
    def select_context(self, request_messages: Rows, **kwargs: Any) -> Any:
        for row in kwargs["conversation_messages"]:
            row["content"] = "seen"


@caught_by("selection-of-little", "raised TypeError")
class NeedsAConversation(Good):
    def select_context(self, request_messages: Rows, **kwargs: Any) -> Any:
        len(kwargs["conversation_messages"])


@caught_by("selection-is-the-same-again", "chose differently")
class SelectsByChance(Good):
    def select_context(self, request_messages: Rows, **kwargs: Any) -> Any:
        return [*request_messages, {"role": "user", "content": secrets.token_hex(4)}]


@caught_by("turn-complete-takes-every-end", "raised TypeError")
class NeedsUsage(Good):
    def on_turn_complete(self, messages: Rows, usage: Any = None, **kwargs: Any) -> None:
        self.spent = usage["total_tokens"]


@caught_by("turn-complete-leaves-its-input-alone", "changed the messages")
class TurnEdits(Good):
    def on_turn_complete(self, messages: Rows, usage: Any = None, **kwargs: Any) -> None:
        messages.append({"role": "user", "content": "(noted)"})


# --- tools


@caught_by("schemas", "has the type 'str'")
class WrongSchema(Good):
    def get_tool_schemas(self) -> Rows:
        parameters = {"type": "object", "properties": {"words": {"type": "str"}}}
        return [{"name": "grep", "description": "d", "parameters": parameters}]


@caught_by("schemas", "a tool is called 'look it up'")
class WrongToolName(Good):
    def get_tool_schemas(self) -> Rows:
        return [{"name": "look it up", "parameters": {"type": "object", "properties": {}}}]


@caught_by("schemas-stay", "gave other tools")
class ToolsAppear(Good):
    def get_tool_schemas(self) -> Rows:
        tools = super().get_tool_schemas()
        return [*tools, {**tools[0], "name": "more"}] if self.compression_count else tools


@caught_by("answers-are-json", "not JSON text")
class AnswersDicts(Good):
    def handle_tool_call(self, name: str, args: Row, **kwargs: Any) -> Any:
        return {"hits": 0}


@caught_by("answers-are-json", "what is no JSON")
class AnswersProse(Good):
    def handle_tool_call(self, name: str, args: Row, **kwargs: Any) -> str:
        return "3 hits"


@caught_by("odd-arguments-are-answered", "raised KeyError: 'words'")
class TrustsArguments(Good):
    def handle_tool_call(self, name: str, args: Row, **kwargs: Any) -> str:
        return json.dumps({"words": args["words"]})


@caught_by("unknown-tools-are-answered", "raised LookupError")
class RaisesAtStrangers(Good):
    def handle_tool_call(self, name: str, args: Row, **kwargs: Any) -> str:
        if name != "grep":
            raise LookupError(name)

        return super().handle_tool_call(name, args, **kwargs)


@caught_by("live-messages-stay", "changed the live messages")
class ToolEdits(Good):
    def handle_tool_call(self, name: str, args: Row, **kwargs: Any) -> str:
        kwargs["messages"].pop()
        return "{}"


# --- clones


@caught_by("can-be-cloned", "clone_for_agent.. returned the engine itself")
class ClonesItself(Good):
    def clone_for_agent(self) -> Any:
        return self


@caught_by("can-be-cloned", "raised TypeError: cannot pickle")
class HoldsALock(Good):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


@caught_by("clones-share-nothing", "share last_prompt_tokens")
class ClonesShare(Good):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = {"prompt": 0}

    @property
    def last_prompt_tokens(self) -> int:
        return self.numbers["prompt"]

    @last_prompt_tokens.setter
    def last_prompt_tokens(self, value: int) -> None:
        self.numbers["prompt"] = value

    def clone_for_agent(self) -> Any:
        made = type(self)()
        made.numbers = self.numbers
        return made


@caught_by("sessions-share-no-numbers", "share last_prompt_tokens")
class SharesClassState(Good):
    def update_from_response(self, usage: dict[str, Any]) -> None:
        type(self).last_prompt_tokens = usage.get("prompt_tokens") or 0


@caught_by("sessions-share-no-text", "text of another session")
class Gossips(Good):
    heard: ClassVar[list[str]] = []

    def summary(self, rows: Rows) -> str:
        self.heard.append(text_of(rows[0])[:200])
        return "\n".join(self.heard[-3:])


# --- threads


@caught_by("any-thread", "in other threads")
class ThreadLocal(Good):
    def __init__(self) -> None:
        super().__init__()
        self.here = threading.local()

    def clone_for_agent(self) -> Any:
        return type(self)()

    @property
    def last_prompt_tokens(self) -> int:
        return getattr(self.here, "prompt", 0)

    @last_prompt_tokens.setter
    def last_prompt_tokens(self, value: int) -> None:
        self.here.prompt = value


@caught_by("compress-beside-other-calls", "raised RuntimeError: busy")
class OneCallAtATime(Good):
    busy = False

    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        self.busy = True
        time.sleep(0.02)
        made = super().compress(messages, *args, **kwargs)
        self.busy = False
        return made

    def update_from_response(self, usage: dict[str, Any]) -> None:
        if self.busy:
            raise RuntimeError("busy")

        super().update_from_response(usage)


@caught_by("several-compress-at-once", "text of another session")
class SharesItsDesk(Good):
    desk: Rows | None = None

    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        self.desk = messages
        time.sleep(0.02)
        return super().compress(self.desk, *args, **kwargs)


@caught_by("tools-beside-compress", "raised RuntimeError: compressing")
class ToolsWait(Good):
    compressing = False

    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        self.compressing = True
        time.sleep(0.05)
        made = super().compress(messages, *args, **kwargs)
        self.compressing = False
        return made

    def handle_tool_call(self, name: str, args: Row, **kwargs: Any) -> str:
        if self.compressing:
            raise RuntimeError("compressing")

        return super().handle_tool_call(name, args, **kwargs)


@caught_by("other-calls-while-the-model-thinks", "did not return within", limit_s=0.5)
class AsksUnderALock(Good):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()

    def clone_for_agent(self) -> Any:
        return type(self)()

    def ask(self, rows: Rows) -> str:
        with self.lock:
            return super().ask(rows)

    def update_from_response(self, usage: dict[str, Any]) -> None:
        with self.lock:
            super().update_from_response(usage)


# --- model failures


@caught_by("model-that-fails", r"compress\(\) raised")
class RaisesWithTheModel(Good):
    def summary(self, rows: Rows) -> str:
        return self.ask(rows)


@caught_by("model-that-fails", "put nothing in their place")
class DropsWithoutASummary(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        made = super().compress(messages, *args, **kwargs)
        return messages[self.cut(messages) - 1 :] if made is messages else made

    def cut(self, messages: Rows) -> int:
        answers = [n for n, row in enumerate(messages) if row["role"] == "user"]
        return answers[-2] + 1 if len(answers) > 2 else 1


@caught_by("model-that-times-out", r"compress\(\) raised TimeoutError")
class NoTimeouts(Good):
    def summary(self, rows: Rows) -> str:
        try:
            return self.ask(rows)
        except TimeoutError:
            raise
        except Exception:  # noqa: BLE001  whatever else a provider's client raises
            return ""


@caught_by("model-that-says-nothing", "put nothing in their place|emptied")
class TakesNothingForASummary(Good):
    def summary(self, rows: Rows) -> str:
        return self.ask(rows) or " "

    def row(self, said: str) -> Row:
        return {"role": "user", "content": said.strip(), "_compressed_summary": True}


@caught_by("model-that-rambles", "tokens of")
class TakesAnyLength(Good):
    def compress(self, messages: Rows, *args: Any, **kwargs: Any) -> Any:
        cut = self.cut(messages)
        said = self.summary(messages[:cut])
        asked = [m for m in messages[:cut] if self.is_asked(m)][-1:]
        if not said or size_of(messages[:cut]) < 2_000:
            return messages

        self.compression_count += 1
        return [self.row(said), *asked, *messages[cut:]]


# --- replay


@caught_by("long-session", "lost what was said last")
class WornOut(Good):
    def is_asked(self, row: Row) -> bool:
        return self.compression_count < 1 and super().is_asked(row)

    def cut(self, messages: Rows) -> int:
        return len(messages) if self.compression_count else super().cut(messages)


@caught_by("same-twice", "another history")
class ByChance(Good):
    def summary(self, rows: Rows) -> str:
        said = super().summary(rows)
        return f"{said} {secrets.token_hex(4)}" if said else ""


@caught_by("after-a-restart", "raised AttributeError")
class KeepsAllInMind(Good):
    def remember(self, said: str) -> None:
        super().remember(said)
        self.said = said

    def handle_tool_call(self, name: str, args: Row, **kwargs: Any) -> str:
        if self.notes is not None and self.notes.exists():
            return json.dumps({"said": self.said})

        return super().handle_tool_call(name, args, **kwargs)
