"""What Gemini wants of the contents of any request, checked with plain assertions."""

from __future__ import annotations

from typing import Any

_DATA = {"text", "inlineData", "functionCall", "functionResponse"}


def check_contents(contents: list[dict[str, Any]], *, is_gemini_3: bool) -> None:
    """Assert that `contents` can be sent as they are."""
    assert contents
    assert contents[0]["role"] == "user"
    assert contents[-1]["role"] == "user"
    for index, content in enumerate(contents):
        assert set(content) == {"role", "parts"}
        assert content["role"] in {"user", "model"}
        assert content["parts"]
        for part in content["parts"]:
            _check_part(part, content["role"])

        before = contents[index - 1] if index else {"role": "", "parts": []}
        assert not (content["role"] == before["role"] == "model"), "two answers in a row"
        _check_responses(before, content, is_gemini_3=is_gemini_3)
        if is_gemini_3:
            calls = _of(content, "functionCall")
            assert not calls or calls[0].get("thoughtSignature"), "the first call is not signed"


def _check_part(part: dict[str, Any], role: str) -> None:
    (data,) = _DATA & set(part)
    assert set(part) <= {data, "thought", "thoughtSignature"}
    if data == "text":
        may_be_empty = role == "model" and "thoughtSignature" in part
        assert part["text"].strip() or may_be_empty, "an empty text"
    if role == "user":
        assert set(part) == {data}
    assert (data == "functionCall") <= (role == "model")
    assert (data == "functionResponse") <= (role == "user")


def _check_responses(before: dict[str, Any], content: dict[str, Any], *, is_gemini_3: bool) -> None:
    """Calls are answered by the very next content, which holds nothing else."""
    calls = [part["functionCall"] for part in _of(before, "functionCall")]
    responses = [part["functionResponse"] for part in _of(content, "functionResponse")]
    assert [call["name"] for call in calls] == [response["name"] for response in responses]
    assert [call.get("id") for call in calls] == [response.get("id") for response in responses]
    assert not responses or len(responses) == len(content["parts"])
    assert all(isinstance(call["args"], dict) for call in calls)
    assert all(("id" in one) == is_gemini_3 for one in (*calls, *responses))
    assert all(set(one["response"]) in ({"output"}, {"error"}) for one in responses)


def _of(content: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [part for part in content["parts"] if kind in part]
