"""The pages about serving, the schema and the TypeScript say what is so."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pod.home import Home
from pod.protocol import EVENTS, Envelope
from pod.protocol.methods import METHODS
from pod.protocol.schema import protocol_schema
from pod.protocol.typescript import typescript
from pod.protocol.wire import AnswerLine, Hello, parse_request, parse_server_line
from pod.serve import Places
from tests.docs.pages import blocks, write_files
from tests.pod.desk import ROOT, Desk, until

PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


def examples(kind: str) -> list[bytes]:
    (found,) = [b for b in blocks(PAGE) if f"examples={kind}" in b.words.split()]
    return [line.encode() for line in found.text.split("\n") if line]


def test_every_event_has_an_example_that_is_one() -> None:
    lines = examples("events")
    for line in lines:
        envelope = parse_server_line(line)
        assert isinstance(envelope, Envelope)
        assert envelope.to_json() == line, "as a pod writes it"

    assert {json.loads(line)["event"] for line in lines} == set(EVENTS)


def test_every_method_has_an_example_of_a_request_and_its_answer() -> None:
    lines = examples("methods")
    shown = set()
    for asked, answered in zip(lines[::2], lines[1::2], strict=True):
        request = parse_request(asked)
        method = METHODS[request.method]
        method.params.model_validate(request.params)
        answer = parse_server_line(answered)
        assert isinstance(answer, AnswerLine)
        assert answer.id == request.id
        shown.add(request.method)
        if answer.ok is not None:
            model = method.answer.model_validate(answer.ok)
            assert model.model_dump(mode="json") == answer.ok, request.method

    assert shown == set(METHODS)


def test_the_hello_is_one() -> None:
    hellos = [b.text for b in blocks(PAGE) if b.language == "jsonl" and '"hello"' in b.text]
    assert isinstance(parse_server_line(hellos[0].encode()), Hello)


def test_every_code_that_is_answered_is_on_the_page() -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for folder in ("pod/serve", "pod/protocol")
        for path in (ROOT / folder).glob("*.py")
        if path.name != "caller.py"
    ]
    errors = (ROOT / "pod" / "failures.py").read_text(encoding="utf-8")
    given = set(re.findall(r'WireError\(\s*"(\w+)"', "".join(sources)))
    given |= set(re.findall(r'ErrorInfo\(code="(\w+)"', "".join(sources)))
    table = re.findall(
        r"_CODES.*?= \((.*?)^\)", "".join([*sources, errors]), re.DOTALL | re.MULTILINE
    )
    given |= set(re.findall(r', "(\w+)"\)', "".join(table)))
    rows = PAGE.split("## Errors", 1)[1]
    documented = set(re.findall(r"`(\w+)`", rows))
    only_from_models = {
        *("thrash", "refused", "overflow", "unavailable", "unreachable", "incomplete"),
        *("bad_answer", "output_invalid", "hook_failed", "bad_line", "error"),
    }
    assert {"busy", "ahead", "too_large", "unknown_method", "storage"} <= given
    assert given - only_from_models <= documented


# --- schema and types -----------------------------------------------------------------------


def schemas(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "properties" in value:
            yield value

        for held in value.values():
            yield from schemas(held)


def fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether a value is what a schema, of the kind that we write, describes."""
    if "$ref" in schema:
        return fits(value, root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)

    if "anyOf" in schema:
        return any(fits(value, option, root) for option in schema["anyOf"])

    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])

    match schema.get("type"):
        case "object" if "properties" in schema:
            known, required = schema["properties"], schema.get("required", [])
            return (
                set(required) <= set(value)
                and (set(value) <= set(known) or schema.get("additionalProperties") is True)
                and all(fits(value[key], known[key], root) for key in value.keys() & known.keys())
            )
        case "array":
            each = schema.get("prefixItems") or [schema["items"]] * len(value)
            return len(each) == len(value) and all(
                fits(one, its, root) for one, its in zip(value, each, strict=True)
            )
        case kind:
            types: dict[Any, Any] = {"string": str, "integer": int, "object": dict, "null": None}
            expected = types.get(kind, object)
            return value is None if expected is None else isinstance(value, expected)


def test_the_schema_describes_what_is_sent() -> None:
    schema = protocol_schema()
    assert set(schema["events"]) == set(EVENTS)
    assert set(schema["methods"]) == set(METHODS)
    for line in map(json.loads, examples("events")):
        assert fits(line, schema["lines"]["event"], schema["lines"]["event"]), line
        data = schema["events"][line["event"]]
        assert fits(line["data"], data, data), line

    lines = [json.loads(line) for line in examples("methods")]
    for asked, answered in zip(lines[::2], lines[1::2], strict=True):
        described = schema["methods"][asked["method"]]
        assert fits(asked, schema["lines"]["request"], schema["lines"]["request"])
        assert fits(asked.get("params", {}), described["params"], described["params"]), asked
        kind = "answer" if "ok" in answered else "error"
        assert fits(answered, schema["lines"][kind], schema["lines"][kind])
        if "ok" in answered:
            assert fits(answered["ok"], described["answer"], described["answer"]), answered


def test_a_schema_says_of_each_field_whether_it_is_always_there() -> None:
    schema = protocol_schema()
    start = schema["events"]["compaction_start"]
    assert "threshold" not in start["required"]
    assert start["properties"]["threshold"]["type"] == "integer", "left out, and never null"
    assert "requests" in schema["events"]["run_end"]["required"]
    assert set(schema["methods"]["status"]["answer"]["required"]) >= {"window", "approvals"}
    assert schema["methods"]["run"]["params"]["required"] == ["input"]
    assert all(set(s.get("required", [])) <= set(s["properties"]) for s in schemas(schema))


def test_the_declarations_are_what_the_code_says() -> None:
    kept = (ROOT / "docs" / "protocol.d.ts").read_text(encoding="utf-8")
    assert kept == typescript(), "run: pod protocol typescript > docs/protocol.d.ts"


def test_every_model_is_declared_once() -> None:
    written = typescript()
    names = re.findall(r"^export (?:interface|type) (\w+)", written, re.MULTILINE)
    assert len(names) == len(set(names))
    models: set[type[BaseModel]] = {*EVENTS.values()}
    models |= {model for m in METHODS.values() for model in (m.params, m.answer)}
    assert {model.__name__ for model in models} <= set(names)
    used = set(re.findall(r": ([A-Z]\w+)", written)) - {"Name"}
    assert used <= {*names, "Record"}


def test_both_are_printed(tmp_path: Path, home: Path) -> None:
    desk = Desk(tmp_path, home)
    assert desk.pod("protocol", "typescript").stdout == typescript()
    assert json.loads(desk.pod("protocol", "schema").stdout) == protocol_schema()


@pytest.mark.skipif(shutil.which("tsc") is None, reason="the TypeScript compiler is not here")
def test_the_declarations_compile() -> None:
    command = ["tsc", "--noEmit", "--strict", str(ROOT / "docs" / "protocol.d.ts")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# --- the unit -------------------------------------------------------------------------------


def test_the_unit_of_systemd_starts_a_pod_and_ends_it_well(tmp_path: Path, home: Path) -> None:
    page = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    folder = tmp_path / "pods"
    folder.mkdir()
    write_files(blocks(page), folder)
    unit = (folder / "pod@.service").read_text(encoding="utf-8")
    (started,) = re.findall(r"^ExecStart=pod (.*)$", unit, re.MULTILINE)
    assert re.search(r"^WorkingDirectory=%h/pods$", unit, re.MULTILINE)
    desk = Desk(folder, home)
    with desk.start(*shlex.split(started.replace("%i", "reviewer"))) as process:
        places = Places.of(Home(home), "reviewer")
        until(lambda: places.socket.exists() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=10)

    assert (process.returncode, out) == (0, b"")
    assert b"reviewer has ended" in err
