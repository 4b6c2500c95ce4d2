"""The scanner finds every key that tomli finds, on the line where it was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from manifests._positions import KeyPath, key_lines

SHIPPED = sorted((Path(__file__).parents[2] / "manifests").rglob("*.toml"))


def paths(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Every key path in a parsed document, the top left out."""
    if path:
        yield path
    children: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    for key, child in children:
        yield from paths(child, (*path, key))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1\n\nb = 2", {("a",): 1, ("b",): 3}),
        ("# c\n[t]\na.b = 1\na.c = 2", {("t",): 2, ("t", "a"): 3, ("t", "a", "b"): 3}),
        ("[a.b]\nx = 1\n[a]\ny = 2", {("a",): 3, ("a", "b"): 1, ("a", "y"): 4}),
        ("[[h]]\na = 1\n[[h]]\na = 2", {("h",): 1, ("h", 0): 1, ("h", 1): 3, ("h", 1, "a"): 4}),
        ("[[h]]\n[[h.k]]\n[h.k.v]\nz=1", {("h", 0, "k", 0): 2, ("h", 0, "k", 0, "v", "z"): 4}),
        ("[[h]]\n[[h]]\n[h.x]\ny=1", {("h", 1, "x"): 3, ("h", 1, "x", "y"): 4}),
        ('s = """\na = 1\n"""\nb = 2', {("s",): 1, ("b",): 4}),
        ("s = '''\n[x]\n'''\nb = 2", {("b",): 4}),
        ('s = """a"""""\nb = 2', {("b",): 2}),
        ("s = ''''x'''''\nb = 2", {("b",): 2}),
        ('s = """a\\"""\n"""\nb = 2', {("b",): 3}),
        ("s = '''a\\'''\nb = 2", {("b",): 2}),
        ('s = ""\nt = \'\'\nb = "\\\\"\nc = 1', {("s",): 1, ("t",): 2, ("b",): 3, ("c",): 4}),
        ('l = [\n  1, # one, ]\n  [2,\n 3],\n]\nb = "]"', {("l", 0): 2, ("l", 1, 1): 4, ("b",): 6}),
        ("t = { a = 1, b = { c = 2 } }\nd = 1", {("t", "b", "c"): 1, ("d",): 2}),
        ("t = {\n a = 1, # x }\n b = 2,\n}\nd = 1", {("t", "a"): 2, ("t", "b"): 3, ("d",): 5}),
        ("l = [{ a = 1 },\n { a = 2 }]", {("l", 0, "a"): 1, ("l", 1, "a"): 2}),
        ("\"a b\" . 'c.d' . e = 1", {("a b",): 1, ("a b", "c.d"): 1, ("a b", "c.d", "e"): 1}),
        ('"\\u0061" = 1\n"x\\"]y" = 2', {("a",): 1, ('x"]y',): 2}),
        ('[ "q]" . z ] # [no]\na = 1', {("q]",): 1, ("q]", "z"): 1, ("q]", "z", "a"): 2}),
        ("d = 1979-05-27 07:32:00\ne = -1.5e3 # x\nf = true", {("d",): 1, ("e",): 2, ("f",): 3}),
        ("a = 1\r\nb = 2\r\n\r\n[c]\r\nd = 3", {("b",): 2, ("c",): 4, ("c", "d"): 5}),
        ("", {}),
        ("# only a comment", {}),
    ],
)
def test_lines_of_every_form_a_key_can_take(text: str, expected: dict[KeyPath, int]) -> None:
    found = key_lines(text)

    assert set(found) == set(paths(tomli.loads(text)))
    assert expected.items() <= found.items()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_shipped_manifests_have_a_line_for_every_key(path: Path) -> None:
    text = path.read_text()
    found = key_lines(text)

    assert set(found) == set(paths(tomli.loads(text)))
    for key, line in found.items():
        assert str(key[-1]) in text.split("\n")[line - 1]


# --- documents made up line by line, so that the right answer is known while writing them ---------

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=4)
texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=8)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@st.composite
def values(draw: st.DrawFn, depth: int = 2) -> str:
    kinds = ["scalar", "string", "lines", "literal"] + (["list", "table"] if depth else [])
    match draw(st.sampled_from(kinds)):
        case "scalar":
            return draw(st.sampled_from(["1", "0x0F", "1e5", "true", "2020-01-02 07:32:00"]))
        case "string":
            return quoted(draw(texts))
        case "lines":
            rows = [quoted(t)[1:-1] for t in draw(st.lists(texts, max_size=3))]
            return '"""\n' + "\n".join(rows) + draw(st.sampled_from(['"""', '\\""""', '"""""']))
        case "literal":
            rows = [t.replace("'", "") for t in draw(st.lists(texts, max_size=3))]
            return "'''" + "\n".join(rows) + "'''"
        case "list":
            items = draw(st.lists(values(depth - 1), max_size=3))
            return "[" + draw(gaps) + (draw(gaps) + "," + draw(gaps)).join(items) + draw(gaps) + "]"
        case _:
            keys = draw(st.lists(names, max_size=3, unique=True))
            pairs = [f"{quoted(k)} = {draw(values(depth - 1))}" for k in keys]
            return "{" + (draw(gaps) + "," + draw(gaps)).join(pairs) + "}"


gaps = st.sampled_from(["", " ", "\t", "\n", " # note, ]}\n ", "\n\n"])


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[KeyPath, int]]:
    """A document, and the lines of the keys it was written from."""
    text = ""
    expected: dict[KeyPath, int] = {}
    tables = draw(st.lists(names, max_size=4, unique=True))
    for table in [None, *(f"t{name}" for name in tables)]:
        prefix: KeyPath = ()
        repeats = 0 if table is None else draw(st.integers(0, 2))
        for index in range(max(repeats, 1)):
            text += draw(st.sampled_from(["", "\n", "# [x]\n", "  \n"]))
            if table is not None:
                header = f"[[{quoted(table)}]]" if repeats else f"[ {quoted(table)} ]"
                prefix = (table, index) if repeats else (table,)
                expected[prefix] = text.count("\n") + 1
                text += header + draw(st.sampled_from(["\n", " # c\n"]))
            for key in draw(st.lists(names, max_size=3, unique=True)):
                text += draw(st.sampled_from(["", "\n", "# k = 1\n"]))
                expected[(*prefix, f"k{key}")] = text.count("\n") + 1
                text += f"{quoted(f'k{key}')} = {draw(values())}\n"
    return text, expected


@given(documents())
def test_made_up_documents_agree_with_tomli_and_with_how_they_were_written(
    document: tuple[str, dict[KeyPath, int]],
) -> None:
    text, expected = document
    found = key_lines(text)

    assert set(found) == set(paths(tomli.loads(text)))
    assert expected.items() <= found.items()


@given(st.text(st.sampled_from(list("ab.=[]{}\"'#,\n 1\\")), max_size=30))
def test_whatever_tomli_accepts_the_scanner_reads_alike(text: str) -> None:
    try:
        document = tomli.loads(text)
    except tomli.TOMLDecodeError:
        return

    assert set(key_lines(text)) == set(paths(document))
