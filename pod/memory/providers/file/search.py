"""Finding notes by words, in any script: text without spaces is matched by pairs. Pure."""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence

from attrs import define, field, frozen

from .notes import Note

# Scripts that part no words: Han, kana, Hangul (whose particles stick to words), Thai, Lao, Khmer.
_UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_ONLY_HIRAGANA = re.compile(r"[\u3040-\u309fー]+")
_SHORTEST_STEM = 4
_WHOLE_QUERY = 4.0
_MOST_TERMS = 400
"""Of a long prompt only its first terms are looked for."""

_COMMON = frozenset(
    re.findall(
        r"\S+",
        "a about after all also am an and any are as at be been but by can could did do does done"
        " for from get had has have he her here him his how i if in into is it its just let like"
        " make may me more my need new no not now of on one or our out please she should show so"
        " some tell than that the their them then there these they this to too up us use want was"
        " we were what when where which who why will with would you your",
    )
)


@frozen
class Found:
    """A note, and how well it fits; `is_telling` where more than common words agree."""

    note: Note
    score: float
    is_telling: bool


def search(query: str, notes: Sequence[Note]) -> list[Found]:
    """Return the notes that share words with `query`, the best first, then the newest first."""
    texts = [_folded(f"{note.id} {note.topic} {note.text}") for note in notes]
    scores: dict[int, float] = defaultdict(float)
    telling: set[int] = set()
    index = _Index.of(texts)
    for term in _terms(_folded(query), most=_MOST_TERMS):
        hits, tells = index.having(term), _tells(term)
        # Rare words say more, and words of grammar next to nothing.
        weight = math.log1p(len(notes) / (1 + len(hits))) * (1.0 if tells else 0.1)
        for place in hits:
            scores[place] += weight
        if tells:
            telling |= hits

    for place in _having_whole(query, texts):
        scores[place] += _WHOLE_QUERY
        telling.add(place)

    found = [Found(notes[place], score, place in telling) for place, score in scores.items()]
    places = {id(note): place for place, note in enumerate(notes)}
    return sorted(found, key=lambda one: (-one.score, -_day(one.note), -places[id(one.note)]))


@define
class _Index:
    """Which texts have which words."""

    places: dict[str, set[int]] = field(factory=lambda: defaultdict(set))
    words: list[str] = field(factory=list)
    """All of them, sorted."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> _Index:
        index = cls()
        for place, text in enumerate(texts):
            for term in _terms(text):
                index.places[term].add(place)

        index.words = sorted(index.places)
        return index

    def having(self, term: str) -> set[int]:
        """Return where a term is, or a word with the same stem."""
        return set().union(*(self.places[word] for word in self._like(term)))

    def _like(self, term: str) -> Iterator[str]:
        if term in self.places:
            yield term

        if _IS_UNSPACED.match(term):
            if len(term) == 1:  # A single character is looked for inside of pairs.
                yield from (word for word in self.words if term in word)
            return

        if len(term) < _SHORTEST_STEM:
            return

        for place in range(bisect_left(self.words, term), len(self.words)):
            if not self.words[place].startswith(term):
                break

            yield self.words[place]

        stems = (term[:size] for size in range(_SHORTEST_STEM, len(term)))
        yield from (stem for stem in stems if stem in self.places)


def _having_whole(query: str, texts: Sequence[str]) -> list[int]:
    """Return where the query stands word for word."""
    whole = " ".join(_folded(query).split())
    if len(whole) < 2:
        return []

    return [place for place, text in enumerate(texts) if whole in " ".join(text.split())]


def _day(note: Note) -> int:
    """Return the date as a number that sorts; what a person wrote without one is the newest."""
    return int(note.date.replace("-", "")) if note.date else 99_999_999


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _terms(folded: str, *, most: int | None = None) -> list[str]:
    """Return the words of a text, and the pairs of characters of what has no words; each once."""
    terms: dict[str, None] = {}
    for found in _RUN.finditer(folded):
        run = found.group()
        if len(run) > 2 and _IS_UNSPACED.match(run):
            terms |= dict.fromkeys(run[n : n + 2] for n in range(len(run) - 1))
        else:
            terms[run] = None

        if most is not None and len(terms) >= most:
            break

    return list(terms)[:most]


def _tells(term: str) -> bool:
    """Tell whether a term says what a text is about."""
    if _IS_UNSPACED.match(term):
        return len(term) > 1 and not _ONLY_HIRAGANA.fullmatch(term)

    return len(term) > 2 and term not in _COMMON
