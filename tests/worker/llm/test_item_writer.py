"""What an encoder holds of its last request: nothing wrong after a failure, nothing of the past."""

from __future__ import annotations

import pytest

from worker.items import Item, Text, UserMessage
from worker.llm.schemes.item_writer import ItemWriter, Written, with_tail


class _Lines:
    def __init__(self, system: str) -> None:
        self._done = bytearray(system.encode())

    def add(self, piece: str) -> None:
        if self._done:
            self._done += b","
        self._done += piece.encode()

    def written(self) -> Written:
        return [self._done]


def test_an_item_that_cannot_be_encoded_leaves_no_half_request_behind() -> None:
    writer = _writer()
    one, bad, two = _said("one"), _said("bad"), _said("two")
    assert _write(writer, one) == "one"
    with pytest.raises(ValueError, match="bad"):
        writer.write("", [one, two, bad])

    assert _write(writer, one) == "one"
    assert _write(writer, one, two) == "one,two"
    assert writer.encoded_items == 4  # the bad one as well: what was encoded is not done again


@pytest.mark.parametrize("then", [["one"], ["two"], [], ["one", "other", "three"], ["two", "one"]])
def test_other_items_or_fewer_are_written_anew(then: list[str]) -> None:
    writer = _writer()
    said = {text: _said(text) for text in ("one", "two", "other", "three")}
    _write(writer, said["one"], said["two"])
    assert _write(writer, *(said[text] for text in then)) == ",".join(then)
    assert _write(writer, said["one"], said["two"], said["three"]) == "one,two,three"


def test_equal_copies_in_any_sequence_and_another_system_prompt() -> None:
    writer = _writer()
    items = [_said("one"), _said("two")]
    writer.write("", items)
    copies = tuple(UserMessage(item.uid, item.parts) for item in items)
    assert b"".join(writer.write("", copies)) == b"one,two"
    assert b"".join(writer.write("Hm.", copies)) == b"Hm.,one,two"
    assert writer.encoded_items == 2


def test_a_list_that_grows_in_the_callers_hands_is_not_held() -> None:
    writer = _writer()
    items: list[Item] = [_said("one")]
    writer.write("", items)
    items.append(_said("two"))
    assert b"".join(writer.write("", items)) == b"one,two"


@pytest.mark.parametrize(
    ("done", "tail", "whole"),
    [
        (b"", [], b""),
        (b"a", [], b"a"),
        (b"", [b"x", b"y"], b"x,y"),
        (b"a", [b"x", b"y"], b"a,x,y"),
    ],
)
def test_a_tail_is_put_behind_what_is_done(done: bytes, tail: list[bytes], whole: bytes) -> None:
    assert b"".join(with_tail(bytearray(done), tail)) == whole


def _writer() -> ItemWriter[str]:
    return ItemWriter(_piece, _Lines)


def _write(writer: ItemWriter[str], *items: Item) -> str:
    return b"".join(writer.write("", list(items))).decode()


def _piece(item: Item) -> str:
    assert isinstance(item, UserMessage)
    part = item.parts[0]
    assert isinstance(part, Text)
    if part.text == "bad":
        raise ValueError(part.text)

    return part.text


def _said(text: str) -> UserMessage:
    return UserMessage(text, (Text(text),))
