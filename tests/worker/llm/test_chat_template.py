"""What tells a local model of tools, by its chat template.

What llama.cpp makes of the template that is added is in `tests/worker/test_local_model.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.gguf_files import model_file, packed, text, texts
from worker.llm.chat_template import added_template, tools_told
from worker.llm.gguf import GgufInfo, read_gguf

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As many models have it, SmolLM2 among them."""

OWN = {
    "a loop": CHATML + "{%- for tool in tools -%}{{ tool }}{%- endfor -%}",
    "a condition": "[INST]{% if tools is not none %}x{% endif %}[/INST]",
    "an expression": "{{ bos_token }}{{ tools | tojson }}",
    "within brackets": "{% if (tools) and not(x) %}{% endif %}",
    "after a quote": "{{ 'it' + \"'s\" + tools }}",
    "never closed": "{{ tools",
}
ADDED = {
    "plain": CHATML,
    "with an end of text": CHATML + "{% if done %}<|endoftext|>{% endif %}",
    "said, not used": CHATML.replace("{{ m.content }}", "No tools here. {{ m.content }}"),
    "quoted": CHATML + '{{ \'Use no tools.\' + "not \\" tools" }}',
    "in a comment": "{# tools: none\n {{ tools }} #}" + CHATML,
    "as a part of a name": CHATML + "{{ toolset }}{{ mytools_x }}",
}
NEVER = {
    "Llama 2": "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}",
    "Phi 4": CHATML.replace("}}\n", "}}<|im_sep|>"),
    "a header of other markers": "<|start_header_id|>{{ role }}<|end_header_id|>",
    "one that thinks": CHATML + "{% if add_generation_prompt %}<think>\n{% endif %}",
    "one that keeps thoughts": CHATML + "{{ m.reasoning_content }}",
    "half of it": CHATML.replace("<|im_end|>", ""),
}


def info(template: str | None, **more: bool) -> GgufInfo:
    return GgufInfo("llama", 4096, None, chat_template=template, **more)


@pytest.mark.parametrize("template", OWN.values(), ids=OWN)
def test_a_template_that_uses_tools_is_left_alone(template: str) -> None:
    assert tools_told(info(template)) == "own"
    assert added_template(info(template)) is None


@pytest.mark.parametrize("template", ADDED.values(), ids=ADDED)
def test_a_plain_chatml_template_gets_one_with_tools_added_and_is_else_kept(template: str) -> None:
    assert tools_told(info(template)) == "added"
    added = added_template(info(template))
    assert added is not None
    assert tools_told(info(added)) == "own"
    assert f"{{%- else %}}\n{template}{{% endif %}}" in added


@pytest.mark.parametrize("template", NEVER.values(), ids=NEVER)
def test_any_other_template_is_left_alone_and_that_is_told(template: str) -> None:
    assert tools_told(info(template)) == "never"
    assert added_template(info(template)) is None


@pytest.mark.parametrize("template", [None, ""])
def test_without_any_template_the_model_is_spoken_to_in_chatml(template: str | None) -> None:
    assert tools_told(info(template)) == "added"
    added = added_template(info(template)) or ""
    assert "<|im_start|>" in added
    assert "selectattr" not in added


def test_a_second_template_for_tools_is_the_models_own_way(tmp_path: Path) -> None:
    assert tools_told(info(CHATML, has_tool_template=True)) == "own"
    path = tmp_path / "m.gguf"
    head = texts(general__architecture="llama", tokenizer__chat_template=CHATML)
    length = text("llama.context_length") + b"\x04\0\0\0" + b"\0\x02\0\0"
    second = texts(tokenizer__chat_template__tool_use="{{ tools }}")
    path.write_bytes(packed([*head, length, *second]))
    assert tools_told(read_gguf(path)) == "own"


def test_a_begin_token_that_the_template_writes_is_written_with_tools_too() -> None:
    begins = added_template(info("{{ bos_token }}" + CHATML)) or ""
    assert begins.index("{{- bos_token }}") < begins.index("<|im_start|>")
    assert "bos_token" not in (added_template(info(CHATML)) or "bos_token")


def test_the_line_break_at_the_end_of_a_template_is_dropped_as_jinja_drops_it() -> None:
    added = added_template(info(CHATML + "\n\n")) or ""
    assert added.endswith("<|im_start|>assistant\n{% endif %}\n{% endif %}")


@given(st.text(alphabet="{}%#'\"\\ tols<|im_startend>\n") | st.text())
def test_any_text_may_be_a_template(template: str) -> None:
    added = added_template(info(template))
    assert (added is None) == (tools_told(info(template)) != "added")


@pytest.mark.parametrize("piece", ["{{", "{#", "{%", "{{ '", '{{ "', "<|", "\\'", '\\"', "{{}}"])
def test_a_template_without_an_end_takes_no_longer_than_its_length(piece: str) -> None:
    assert tools_told(info("{{ " + piece * (1_000_000 // len(piece)))) == "never"


def test_what_a_file_says_is_what_is_judged(tmp_path: Path) -> None:
    assert tools_told(read_gguf(model_file(tmp_path, template=CHATML))) == "added"
    assert tools_told(read_gguf(model_file(tmp_path, template="[INST]"))) == "never"
    assert tools_told(read_gguf(model_file(tmp_path))) == "added"
