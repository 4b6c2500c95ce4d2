"""Usage as Chat Completions servers report it."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.llm.wire import chunk, usage_chunk
from worker.llm import Answer, Usage
from worker.llm.schemes.chat.decoder import ChatDecoder
from worker.llm.schemes.chat.usage import read_usage

DONE = "[DONE]"


def decode(*chunks: dict[str, Any] | str) -> tuple[list[Any], Answer]:
    decoder = ChatDecoder("openai_compatible", "m")
    texts = [each if isinstance(each, str) else json.dumps(each) for each in chunks]
    return [event for text in texts for event in decoder.feed(text)], decoder.finish()


# --- usage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param(
            {
                "prompt_tokens": 38196,
                "completion_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 38153},
            },
            Usage(38196, 10, cache_read=38153),
            id="D03: cached tokens are inside already",
        ),
        pytest.param(
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": None},
            Usage(9, 1),
            id="null details",
        ),
        pytest.param(
            {"prompt_tokens": 100, "completion_tokens": 1, "prompt_cache_hit_tokens": 64},
            Usage(100, 1, cache_read=64),
            id="DeepSeek",
        ),
        pytest.param(
            {
                "prompt_tokens": 100,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 90},
            },
            Usage(100, 1, cache_read=0, cache_write=90),
            id="OpenRouter's cache writes",
        ),
        pytest.param(
            {"prompt_tokens": 100, "completion_tokens": 1, "cached_tokens": 64},
            Usage(100, 1, cache_read=64),
            id="Moonshot",
        ),
        pytest.param(
            {"prompt_tokens": 100, "completion_tokens": 1, "num_cached_tokens": 64},
            Usage(100, 1, cache_read=64),
            id="Mistral",
        ),
        pytest.param(
            {
                "prompt_tokens": 9,
                "completion_tokens": 1,
                "prompt_token_details": {"cached_tokens": 8},
            },
            Usage(9, 1, cache_read=8),
            id="Mistral's other spelling",
        ),
        pytest.param(
            {
                "prompt_tokens": 100,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_creation_input_tokens": 90},
            },
            Usage(100, 1, cache_read=4, cache_write=90),
            id="DashScope's cache writes",
        ),
        pytest.param(
            {
                "prompt_tokens": 100,
                "completion_tokens": 1,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 90,
            },
            Usage(100, 1, cache_read=4, cache_write=90),
            id="LiteLLM's, in Anthropic's words",
        ),
        pytest.param(
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 45,
                "completion_tokens_details": {"reasoning_tokens": 30},
            },
            Usage(10, 35),
            id="xAI counts reasoning apart",
        ),
        pytest.param(
            {
                "prompt_tokens": 10,
                "completion_tokens": 35,
                "total_tokens": 45,
                "completion_tokens_details": {"reasoning_tokens": 30},
            },
            Usage(10, 35),
            id="everybody else counts it within",
        ),
        pytest.param(
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 90},
            },
            Usage(100, 5, cache_read=90),
            id="a cached part larger than the prompt was not inside it",
        ),
        pytest.param({"completion_tokens": 5}, Usage(None, 5), id="no prompt"),
        pytest.param(
            {"prompt_tokens": 0, "completion_tokens": 5}, Usage(None, 5), id="prompt of 0"
        ),
        pytest.param({"prompt_tokens": 5, "completion_tokens": 0}, Usage(5, 0), id="said nothing"),
        pytest.param({"prompt_tokens": True}, None, id="true is no number"),
        pytest.param(
            {"prompt_tokens": -1, "completion_tokens": 5}, Usage(None, 5), id="a sentinel"
        ),
        pytest.param([], None, id="no object"),
        pytest.param(None, None, id="null"),
        pytest.param({"prompt_tokens": 0, "completion_tokens": 0}, None, id="zeros"),
        pytest.param({"prompt_tokens": "9"}, None, id="no numbers"),
        pytest.param({"prompt_tokens": 9.0, "completion_tokens": 2.0}, Usage(9, 2), id="fractions"),
        pytest.param({"prompt_tokens": 9.5}, None, id="half a token"),
        pytest.param({"input_tokens": 9, "output_tokens": 2}, Usage(9, 2), id="other names"),
        pytest.param({"total_tokens": 11}, None, id="the total alone"),
    ],
)
def test_usage(usage: dict[str, Any] | None, expected: Usage | None) -> None:
    _, answer = decode(chunk({"content": "Hi"}, usage=usage), chunk(finish="stop"))
    assert answer.usage == expected


def test_i12_i13_the_last_real_usage_holds() -> None:
    zeros = {"prompt_tokens": 0, "completion_tokens": 0}
    _, answer = decode(
        chunk({"content": "H"}, usage=None),
        chunk({"content": "i"}, usage=zeros),
        chunk(finish="stop", usage={"prompt_tokens": 7, "completion_tokens": 1}),
        usage_chunk(8, 2),
        chunk(usage=zeros),
        DONE,
    )
    assert answer.usage == Usage(8, 2)
    assert answer.stop_reason == "end"


def test_timings_of_llama_cpp_and_the_envelope_of_groq() -> None:
    timings = {"prompt_n": 10, "cache_n": 90, "predicted_n": 5}
    _, answer = decode(chunk({"content": "Hi"}), chunk(finish="stop", timings=timings))
    assert answer.usage == Usage(100, 5, cache_read=90)

    groq = {"usage": {"prompt_tokens": 6, "completion_tokens": 2}}
    _, answer = decode(chunk({"content": "Hi"}), chunk(finish="stop", x_groq=groq))
    assert answer.usage == Usage(6, 2)


def test_usage_inside_the_choice() -> None:
    choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
    inside = {"choices": [choice | {"usage": {"prompt_tokens": 6, "completion_tokens": 2}}]}
    _, answer = decode(chunk({"content": "Hi"}), inside)
    assert answer.usage == Usage(6, 2)


def test_i25_an_answer_without_usage_has_none() -> None:
    _, answer = decode(chunk({"content": "Hi"}), chunk(finish="stop"), DONE)
    assert answer.usage is None


_numbers = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=2)
_keys = st.sampled_from(
    ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "cached_tokens",
     "completion_tokens_details", "reasoning_tokens", "prompt_n", "cache_n", "predicted_n"]
)  # fmt: skip
_usages = st.recursive(
    _numbers,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_keys, inner),
    max_leaves=9,
)


@given(_usages, _usages, _usages)
def test_no_usage_is_ever_a_sentinel(usage: object, groq: object, timings: object) -> None:
    chunk_of_it = {"usage": usage, "x_groq": {"usage": groq}, "timings": timings, "choices": [1]}
    read = read_usage(chunk_of_it)
    counts = () if read is None else attrs.astuple(read)
    assert all(count is None or (type(count) is int and count >= 0) for count in counts)
