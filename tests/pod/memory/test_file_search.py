"""Notes are found by words, in scripts that part words and in those that do not."""

from __future__ import annotations

import time

import pytest

from pod.memory.providers.file.notes import Note
from pod.memory.providers.file.search import Found, search

TEXTS = {
    "db": "The staging database is db-7, reset every Monday.",
    "deploy": "Deployments go out on Tuesdays at 10:00.",
    "tabs": "The user prefers tabs over spaces.",
    "ja": "毎週火曜日に本番環境へデプロイする。担当は田中さん。",
    "zh": "生产环境的数据库密码由王伟保管。",
    "ko": "서울 사무실은 오전 9시에 열립니다.",
    "th": "สำนักงานอยู่ที่เชียงใหม่",
    "ru": "Совещание по четвергам в десять.",
    "de": "Die Straße vor dem Büro ist gesperrt.",
}
NOTES = [Note(name, "2026-12-01", text, "notes") for name, text in TEXTS.items()]


def ids(found: list[Found]) -> list[str]:
    return [one.note.id for one in found]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("database", "db"),
        ("DATABASE?", "db"),
        ("databases", "db"),
        ("when do we deploy", "deploy"),
        ("db-7", "db"),
        ("tab", "tabs"),
        ("デプロイはいつですか", "ja"),
        ("ﾃﾞﾌﾟﾛｲ", "ja"),
        ("田中", "ja"),
        ("数据库的密码在谁那里", "zh"),
        ("库", "zh"),
        ("사무실이 언제 열려요", "ko"),
        ("เชียงใหม่", "th"),
        ("ЧЕТВЕРГ", "ru"),
        ("STRASSE", "de"),
    ],
)
def test_the_best_is_first(query: str, first: str) -> None:
    assert ids(search(query, NOTES))[0] == first


@pytest.mark.parametrize(
    "query",
    ["", "?!", "zebra", "动物园"],
)
def test_what_says_nothing_finds_nothing_telling(query: str) -> None:
    assert [one for one in search(query, NOTES) if one.is_telling] == []


@pytest.mark.parametrize("query", ["what is it that you would like to do", "これはですか"])
def test_words_of_grammar_do_not_tell(query: str) -> None:
    notes = [Note("a", "", "It is what you would do for the one.", "t"), NOTES[3]]
    assert not any(one.is_telling for one in search(query, notes))


def test_of_equals_the_newest_is_first_and_one_by_hand_is_newest() -> None:
    notes = [
        Note("old", "2024-01-01", "the red door", "t"),
        Note("new", "2026-01-01", "the red door", "t"),
        Note("hand", "", "the red door", "t"),
    ]
    assert ids(search("red door", notes)) == ["hand", "new", "old"]


def test_a_rare_word_says_more_than_a_frequent_one() -> None:
    notes = [
        *(Note(f"n{n}", "2026-01-01", f"server number {n}", "t") for n in range(20)),
        Note("rare", "2020-01-01", "the kestrel", "t"),
    ]
    assert ids(search("server kestrel", notes))[0] == "rare"


def test_a_topic_is_searched_too() -> None:
    assert ids(search("gardening", [Note("a", "", "roses in May", "gardening")])) == ["a"]


def test_much_text_takes_no_long_time() -> None:
    notes = [Note(f"n{n}", "", f"word{n} other{n % 7} 東京タワー{n}", "t") for n in range(5_000)]
    query = " ".join(f"word{n} 東京{n}" for n in range(5_000))
    began = time.process_time()
    assert search(query, notes)
    assert time.process_time() - began < 5
