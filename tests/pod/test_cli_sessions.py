from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pod.cli.failures import EXIT_CODES, exit_code, is_expected
from pod.cli.listing import age
from pod.cli.sessions import sessions
from pod.home import Home
from session_store import Durability, FileSessionStore, Session, SessionInUse
from session_store.errors import Holder
from worker.items import (
    AssistantMessage,
    Covers,
    Image,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    new_uid,
    user_message,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(home: Path) -> FileSessionStore:
    return FileSessionStore(home, durability=Durability.FLUSH)


def pod(*args: str, width: int | None = None) -> Result:
    env = {"COLUMNS": str(width) if width else ""}
    return CliRunner(env=env).invoke(sessions, args, prog_name="pod sessions")


def said(*args: str) -> Any:
    done = pod(*args, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def run(session: Session, text: str) -> None:
    call = ToolCall("c", "read", '{"path":\n "a.py"}', new_uid())
    session.append_items("user_input", [user_message(text)])
    session.append_items(
        "assistant_items", [AssistantMessage(new_uid(), (Text("let me look"), call), "p", "m", "t")]
    )
    session.append_items(
        "tool_results",
        [ToolResult(new_uid(), "c", call.call_uid, "read 3 lines", "x" * 4_000, is_error=False)],
    )
    session.append_items(
        "assistant_items", [AssistantMessage(new_uid(), (Text("here"),), "p", "m", "end")]
    )
    session.append("usage", history_len=4, input_tokens=3_412, output_tokens=5, model="m")
    session.append("run_outcome", outcome="finished", interrupted=False)


def made(store: FileSessionStore, *prompts: str, name: str = "probe") -> str:
    with store.create(pod=name, system_prompt="S", config={}) as session:
        for prompt in prompts:
            run(session, prompt)
        return session.session_id


def ends(store: FileSessionStore, session_id: str) -> list[str]:
    return [entry.hash for entry in store.entries(session_id) if entry.kind == "run_outcome"]


def compacted(store: FileSessionStore, old: str, keep: int) -> str:
    state = store.restore(old)
    cut, kept = state.history[:-keep], state.history[-keep:]
    covers = Covers(old, cut[0].uid, cut[-1].uid, state.head.hash)
    return store.save_compacted(old, [SummaryMessage(new_uid(), "so far", covers, 1), *kept])


# --- list ---------------------------------------------------------------------------------------


def test_the_list_is_the_contracts_list(store: FileSessionStore) -> None:
    old = made(store, "first", "second")
    fork = store.fork(old, at=ends(store, old)[0])

    rows = said("list")

    assert [row["session_id"] for row in rows] == [fork, old]
    assert list(rows[0]) == [
        "session_id", "pod", "title", "created", "updated", "turns", "items", "tokens",
        "forked_from", "compacted_from", "interrupted", "writer",
    ]  # fmt: skip
    assert rows[0]["forked_from"] == [old, ends(store, old)[0]]
    assert (rows[0]["turns"], rows[1]["turns"]) == (1, 2)
    assert rows[1]["forked_from"] is None


def test_the_list_says_what_is_special(store: FileSessionStore) -> None:
    damaged, running = made(store, "the damaged one"), made(store, "the running one")
    path = store.layout.log(damaged)
    path.write_bytes(path.read_bytes().replace(b"let me", b"let us"))
    with store.open(running) as session:
        session.append_items("user_input", [user_message("more")])
        during = pod("list").stdout
        writer = {row["session_id"]: row for row in said("list")}[running]["writer"]
    after = pod("list").stdout

    assert writer["pid"] == os.getpid()
    assert set(writer) == {"pid", "host", "since"}
    assert f"in use by pid {os.getpid()}" in during
    assert "interrupted" not in during
    assert "interrupted" in after
    assert "damaged: entry 2 does not match its hash" in after
    assert {row["session_id"]: row for row in said("list")}[damaged]["damaged"].startswith(
        "entry 2"
    )


def test_the_list_can_be_narrowed(store: FileSessionStore) -> None:
    made(store, "a", name="one")
    newest = made(store, "b", name="two")
    made(store, "c", name="one")

    assert [row["session_id"] for row in said("list", "--pod", "two")] == [newest]
    assert len(said("list", "--limit", "2")) == 2
    assert pod("list", "--limit", "0").exit_code == 2


@pytest.mark.parametrize("command", ["list", "tree"])
def test_an_empty_store_says_so_and_makes_nothing(home: Path, command: str) -> None:
    home.rmdir()

    done = pod(command)

    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no sessions yet\n")
    assert said(command) == []
    assert not home.exists()


def test_lines_fit_80_columns_or_are_broken_with_whole_ids(store: FileSessionStore) -> None:
    old = made(store, "移行計画を確認します " * 20, "second")
    new = compacted(store, old, 4)
    store.set_pointer("probe", new)
    forks = [new]
    for _ in range(3):
        forks.append(store.fork(forks[-1]))

    for command in ("list", "tree"):
        lines = pod(command, width=80).stdout.split("\n")
        assert max(map(cells, lines)) <= 80, command
        for session_id in (old, *forks):
            assert any(session_id in line for line in lines), command


def cells(line: str) -> int:
    return len(line) + sum("\u3000" <= char <= "\uffef" for char in line)


# --- tree ---------------------------------------------------------------------------------------


def test_the_tree_shows_what_came_from_what(store: FileSessionStore) -> None:
    root = made(store, "Explain hash chains", "more", "and more")
    fork = store.fork(root, at=ends(store, root)[1])
    grandchild = store.fork(fork)
    new = compacted(store, root, 4)
    store.set_pointer("probe", new)
    other = made(store, "something else", name="another")

    done = pod("tree")

    assert done.exit_code == 0
    shown = [" ".join(line.split()) for line in done.stdout.rstrip("\n").split("\n")]
    assert shown == [
        "another",
        f'└─ {other} "something else" 1 turn 3,412 tokens now',
        "probe",
        f'└─ {root} "Explain hash chains" 3 turns 3,412 tokens now',
        f"├─ forked at 2 ▸ {fork} 2 turns 3,412 tokens now",
        f"│ └─ forked at 2 ▸ {grandchild} 2 turns 3,412 tokens now",
        f"└─ compacted ▸ {new} 1 turn + summary {tokens(new)} now ← current",
    ]

    rows = {row["session_id"]: row for row in said("tree")}
    assert [rows[new][key] for key in ("parent", "relation", "current")] == [root, "compact", True]
    assert [rows[root][key] for key in ("parent", "relation", "current")] == [None, None, False]


def tokens(session_id: str) -> str:
    (row,) = [row for row in said("list") if row["session_id"] == session_id]
    return f"{row['tokens']:,} tokens"


def test_a_session_whose_parent_is_gone_is_a_root(store: FileSessionStore) -> None:
    old = made(store, "one", "two")
    new = compacted(store, old, 4)
    store.layout.log(old).unlink()

    assert f"└─ {new}" in pod("tree").stdout


def test_a_long_chain_of_compactions_is_a_tree(store: FileSessionStore) -> None:
    session_id = made(store, "one")
    for _ in range(60):
        session_id = store.save_compacted(session_id, [user_message("kept")])

    done = pod("tree")
    assert done.exit_code == 0
    assert len(done.stdout.split("\n")) == 63


def test_a_pointer_that_points_nowhere_ends_no_tree(store: FileSessionStore) -> None:
    session_id = made(store, "one")
    store.set_pointer("probe", session_id)
    store.layout.pointer("probe").write_text('{"session_id": "../../etc"}')

    done = pod("tree")

    assert done.exit_code == 0
    assert "current" not in done.stdout


def test_titles_cannot_drive_the_terminal(store: FileSessionStore) -> None:
    made(store, "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe \x9b31m")

    for args in (["list"], ["tree"], ["search", "owned"]):
        shown = pod(*args).stdout
        assert "owned" in shown
        assert not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e"}


# --- show ---------------------------------------------------------------------------------------


def test_show_reads_like_a_conversation(store: FileSessionStore) -> None:
    session_id = made(store, "Explain\nhash chains")
    (end,) = ends(store, session_id)

    done = pod("show", session_id)

    assert done.stdout.split("\n") == [
        f"session {session_id} · probe · 4 items",
        "",
        "user",
        "  Explain",
        "  hash chains",
        "",
        "assistant · p/m",
        "  let me look",
        '  → read {"path": "a.py"}',
        "",
        "tool read",
        "  read 3 lines",
        "  [content: 4,000 bytes]",
        "",
        "assistant · p/m",
        "  here",
        "",
        f"— finished · entry 6 {end[:12]} —",
        "",
    ]


def test_show_knows_every_kind_of_item(store: FileSessionStore) -> None:
    image = Image("image/png", b"12345")
    call = ToolCall("c", "look", "{}", new_uid())
    thought = Reasoning("hm", signature="s")
    with store.create(pod="probe", system_prompt="S", config={}) as session:
        parts = (Text("see"), image)
        session.append_items("user_input", [UserMessage(new_uid(), parts, origin="injected")])
        session.append_items(
            "assistant_items", [AssistantMessage(new_uid(), (thought, call), "p", "", "t")]
        )
        result = ToolResult(new_uid(), "c", call.call_uid, "no", None, True, (image,))
        session.append_items("tool_results", [result])
        session.append_items("system_item", [SystemNote(new_uid(), "mind this", "hook")])

    shown = pod("show", session.session_id).stdout

    assert "user · injected\n  see\n  [image/png, 5 bytes]" in shown
    assert "assistant\n  (thought: hm)\n  → look {}" in shown
    assert "tool look · error\n  no\n  [image/png, 5 bytes]" in shown
    assert "note · hook\n  mind this" in shown
    assert "4 items · interrupted" in shown


def test_show_of_a_fork_begins_with_its_parents_items(store: FileSessionStore) -> None:
    root = made(store, "on the root", "not inherited")
    first, _ = ends(store, root)
    fork = store.fork(root, at=first)
    with store.open(fork) as session:
        run(session, "on the fork")

    shown = pod("show", fork).stdout

    assert shown.index("on the root") < shown.index(f"of {root}") < shown.index("on the fork")
    assert "not inherited" not in shown
    assert f"— finished · entry 6 {ends(store, fork)[0][:12]} —" in shown
    assert [item["type"] for item in said("show", fork)["items"]].count("user_message") == 2


def test_an_amended_item_is_shown_as_it_is_now(store: FileSessionStore) -> None:
    first = user_message("as it was")
    with store.create(pod="probe", system_prompt="S", config={}) as session:
        session.append_items("user_input", [first])
        session.append("item_amended", item=UserMessage(first.uid, (Text("as it is"),)))

    shown = pod("show", session.session_id).stdout
    assert "as it is" in shown
    assert "as it was" not in shown


def test_covered_shows_what_a_summary_stands_for(store: FileSessionStore) -> None:
    old = made(store, "the first", "the second", "the third")
    new = compacted(store, old, 4)

    shown = pod("show", new, "--covered").stdout
    value = said("show", new, "--covered")

    assert shown.startswith(f"session {new} · its summary stands for 8 items of {old}\n")
    assert "the first" in shown
    assert "the second" in shown
    assert "the third" not in shown
    assert "tool read" in shown
    assert (value["session_id"], value["covered_in"]) == (new, old)
    assert value["items"] == said("show", old)["items"][:8]


def test_covered_without_a_summary_is_what_is_missing(store: FileSessionStore) -> None:
    old = made(store, "the first", "the second")
    new = store.save_compacted(old, store.restore(old).history[4:])

    assert said("show", new, "--covered")["items"] == said("show", old)["items"][:4]


def test_covered_of_a_session_that_was_not_compacted(store: FileSessionStore) -> None:
    session_id = made(store, "one")

    done = pod("show", session_id, "--covered")

    assert (done.exit_code, done.stdout) == (0, "")
    assert "no summary" in done.stderr
    assert said("show", session_id, "--covered")["items"] == []


def test_covered_says_when_the_old_session_is_gone(store: FileSessionStore) -> None:
    old = made(store, "one", "two")
    new = compacted(store, old, 4)
    store.layout.log(old).unlink()

    done = pod("show", new, "--covered")

    assert done.exit_code == 2
    assert old in done.stderr


@pytest.mark.parametrize("has_fork", [False, True])
def test_covered_says_when_the_old_session_was_removed(
    store: FileSessionStore, has_fork: bool
) -> None:
    old = made(store, "one", "two")
    new = compacted(store, old, 4)
    if has_fork:
        store.fork(old, at=next(iter(store.entries(old))).hash)
    assert pod("rm", old, "--detach", "--yes").exit_code == 0

    done = pod("show", new, "--covered")

    assert done.exit_code == 2
    assert f"no session {old}: it was removed" in done.stderr


def test_show_of_a_damaged_session_says_what_to_do(store: FileSessionStore) -> None:
    session_id = made(store, "one")
    path = store.layout.log(session_id)
    path.write_bytes(path.read_bytes().replace(b"let me", b"let us"))

    done = pod("show", session_id)

    assert done.exit_code == 3
    assert done.stderr.split("\n") == [
        f"session {session_id} is damaged: entry 2 does not match its hash (entries 0–1 verify)",
        f"  nothing was changed; to go on from what verifies: pod sessions salvage {session_id}",
        "",
    ]


# --- verify -------------------------------------------------------------------------------------


def test_verify_counts_what_matches(store: FileSessionStore) -> None:
    first, _ = made(store, "one"), made(store, "two")

    assert pod("verify", first).stdout == "1 session, 7 entries: all hashes match.\n"
    assert pod("verify", "--all").stdout == "2 sessions, 14 entries: all hashes match.\n"
    assert said("verify", "--all")[0] == {
        "session_id": first,
        "ok": True,
        "entries": 7,
        "first_bad_seq": None,
        "reason": None,
        "head": store.restore(first).head.hash,
    }


@pytest.mark.parametrize(
    ("damage", "seq"),
    [
        (lambda lines: [*lines[:3], lines[3].replace(b"read 3", b"read 9"), *lines[4:]], 3),
        (lambda lines: lines[:2] + lines[3:], 2),
        (lambda lines: [*lines[:3], b"\0" * 300, *lines[3:]], 3),
        (lambda lines: [*lines[:4], b""], 3),
    ],
    ids=["changed", "dropped", "NULs", "cut short"],
)
def test_verify_names_the_first_bad_entry(
    store: FileSessionStore, damage: Callable[[list[bytes]], list[bytes]], seq: int
) -> None:
    good, bad = made(store, "one"), made(store, "two")
    path = store.layout.log(bad)
    path.write_bytes(b"\n".join(damage(path.read_bytes().split(b"\n"))))

    alone, every, value = pod("verify", bad), pod("verify", "--all"), pod("verify", bad, "--json")

    assert (alone.exit_code, every.exit_code, value.exit_code) == (3, 3, 3)
    assert f"session {bad} is damaged: entry {seq} " in alone.stderr
    assert alone.stdout == ""
    assert every.stdout.startswith("2 sessions, ")
    assert every.stdout.endswith(": 1 session damaged.\n")
    assert json.loads(value.stdout)[0]["first_bad_seq"] == seq
    assert pod("verify", good).exit_code == 0


def test_verify_says_that_a_torn_tail_is_no_damage(store: FileSessionStore) -> None:
    session_id = made(store, "one")
    with store.layout.log(session_id).open("ab") as file:
        file.write(b'{"hash":"aa')

    done = pod("verify", session_id)

    assert done.exit_code == 0
    assert "11 bytes" in done.stderr


def test_verify_wants_one_session_or_all(store: FileSessionStore) -> None:
    session_id = made(store, "one")

    assert pod("verify").exit_code == 2
    assert pod("verify", session_id, "--all").exit_code == 2


# --- fork and search ----------------------------------------------------------------------------


def test_fork_says_where_it_began(store: FileSessionStore) -> None:
    root = made(store, "one", "two")
    before = store.layout.log(root).read_bytes()
    first, second = ends(store, root)

    value = said("fork", root)
    early = said("fork", root, "--at", first[:10])
    text = pod("fork", root).stdout

    assert (value["forked_from"], value["moved"]) == ([root, second], False)
    assert (early["forked_from"], early["seq"]) == ([root, first], 6)
    assert store.restore(early["session_id"]).forked_from == (root, first)
    assert text.endswith(f"forked from {root} at entry 12\n")
    assert store.layout.log(root).read_bytes() == before


def test_fork_says_when_the_point_was_moved(store: FileSessionStore) -> None:
    root = made(store, "one")
    entries = list(store.entries(root))

    value = said("fork", root, "--at", entries[2].hash)
    done = pod("fork", root, "--at", entries[2].hash)

    assert value["forked_from"] == [root, entries[1].hash]
    assert value["moved"] is True
    assert "tool call" in value["reason"]
    assert "at entry 1" in done.stdout
    assert "earlier than asked for" in done.stderr


@pytest.mark.parametrize("at", ["00" * 32, "abc", "xyz" * 5, "../../etc"])
def test_fork_at_nothing_is_wrong_use(store: FileSessionStore, at: str) -> None:
    root = made(store, "one")

    done = pod("fork", root, "--at", at)

    assert done.exit_code == 2
    assert root in done.stderr
    assert len(store.ids()) == 1


def test_search_finds_in_any_script(store: FileSessionStore) -> None:
    session_id = made(store, "Find the zebra-42 ticket: 移行計画")

    for words in (["zebra-42"], ["移行計画"], ["zebra", "TICKET"], ["計画"]):
        (hit,) = said("search", *words)
        assert list(hit) == ["session_id", "uid", "role", "snippet"]
        assert (hit["session_id"], hit["role"]) == (session_id, "user")
        assert hit["snippet"] == "Find the zebra-42 ticket: 移行計画"

    assert pod("search", "zebra").stdout.startswith(f"{session_id}  user")
    assert said("search", '"quo"te AND (') == []
    nothing = pod("search", "giraffe")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "nothing found\n")


def test_search_says_what_is_wrong_with_the_index(store: FileSessionStore, home: Path) -> None:
    made(store, "zebra")
    Home(home).index.write_bytes(b"no database" * 1_000)

    done = pod("search", "zebra")

    assert "zebra" in done.stdout
    assert "made anew" in done.stderr
    assert pod("search", "zebra").stderr == ""


# --- ids, errors, terminals ---------------------------------------------------------------------

HOSTILE = [
    "../../etc/passwd",
    "..",
    "a/b",
    "x%00y",
    "-rf",
    "~root",
    "",
    "0" * 36,
    "01A2",
    "0199f3a1%",
]


@pytest.mark.parametrize("bad", HOSTILE)
@pytest.mark.parametrize("command", ["show", "verify", "fork"])
def test_hostile_ids_are_wrong_use(store: FileSessionStore, command: str, bad: str) -> None:
    made(store, "one")
    files = sorted(store.layout.home.rglob("*"))

    done = pod(command, "--", bad)

    assert done.exit_code == 2
    assert done.stderr
    assert "Traceback" not in done.output
    assert sorted(store.layout.home.rglob("*")) == files


def test_an_id_may_be_cut_where_no_other_begins_so(home: Path) -> None:
    hours = iter(range(1_800_000_000_000, 1_900_000_000_000, 3_600_000))
    store = FileSessionStore(home, durability=Durability.FLUSH, clock=lambda: next(hours))
    first, second = made(store, "one"), made(store, "two")

    assert said("show", first[:8])["session_id"] == first
    assert said("show", second[:13])["session_id"] == second
    assert pod("show", first[:7]).exit_code == 2
    assert pod("show", "ffffffff").exit_code == 2


def test_an_ambiguous_id_names_those_it_may_be(home: Path) -> None:
    store = FileSessionStore(home, durability=Durability.FLUSH, clock=lambda: 1_800_000_000_000)
    first, second = made(store, "one"), made(store, "two")

    done = pod("show", first[:8])

    assert done.exit_code == 2
    assert first in done.stderr
    assert second in done.stderr


def test_every_error_of_the_table_is_one_that_exists() -> None:
    for name, code in EXIT_CODES.items():
        module, _, cls = name.rpartition(".")
        assert issubclass(getattr(importlib.import_module(module), cls), Exception), name
        assert code in {1, 2, 3, 4, 130}


def test_an_error_has_the_code_of_the_nearest_class() -> None:
    from manifests import ManifestUnreadable

    in_use = SessionInUse("s", Holder(1, "h", 0, "pod run"))
    assert exit_code(in_use) == 1
    assert is_expected(in_use)
    assert exit_code(ManifestUnreadable.__new__(ManifestUnreadable)) == 2
    assert exit_code(RuntimeError("x")) == 1
    assert not is_expected(RuntimeError("x"))


def shell(home: Path, script: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    command = f'"{sys.executable}" -c "from pod.cli.sessions import sessions; sessions()"'
    return subprocess.run(
        ["bash", "-c", "set -o pipefail; " + script.replace("POD", command)],
        cwd=ROOT, env={**os.environ, "POD_HOME": str(home), **env},
        capture_output=True, check=False,
    )  # fmt: skip


def test_a_reader_that_leaves_early_gets_no_traceback(store: FileSessionStore, home: Path) -> None:
    session_id = made(store, "x" * 200_000 + "\n" + "line\n" * 50_000)

    done = shell(home, f"POD show {session_id} | head -1")

    assert done.stdout.startswith(b"session ")
    assert done.stderr == b""


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
)
def test_any_terminal_shows_it_all(
    store: FileSessionStore, home: Path, env: dict[str, str]
) -> None:
    session_id = made(store, "移行計画 café", "…")
    fork = store.fork(session_id)
    store.set_pointer("probe", fork)

    for words in ("tree", "list", f"show {session_id}", "search 移行計画", "list --json"):
        done = shell(home, f"POD {words}", **env)
        assert (done.returncode, done.stderr) == (0, b""), words
        assert session_id.encode() in done.stdout

    if "PYTHONIOENCODING" in env:
        tree = shell(home, "POD tree", **env).stdout
        assert b"`- forked at 2 > " + fork.encode() in tree
        assert b"<- current" in tree
        assert tree.isascii() == (env["PYTHONIOENCODING"] == "ascii")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "now"), (0, "now"), (29, "now"), (30, "1 min ago"), (125, "2 min ago"),
     (7_200, "2 h ago"), (3 * 86_400, "3 d ago")],
)  # fmt: skip
def test_ages_are_short(seconds: int, shown: str) -> None:
    assert age(1_800_000_000_000 - seconds * 1_000, 1_800_000_000_000) == shown


def test_old_sessions_show_their_date() -> None:
    assert age(1_700_000_000_000, 1_800_000_000_000).startswith("2023-11-1")


def test_a_home_is_named_by_the_environment_or_the_users_own(tmp_path: Path) -> None:
    named = Home.from_env({"POD_HOME": str(tmp_path / "named")})
    own = Home.from_env({})

    assert named.sessions == tmp_path / "named" / "sessions"
    assert own.root.name == "pod"
    assert own.root.is_absolute()
    assert Home.from_env({"POD_HOME": "~/x"}).root == Path.home() / "x"
    assert not named.root.exists()
    made_folder = named.ensure(named.run)
    assert made_folder.stat().st_mode & 0o777 == 0o700
    assert named.root.stat().st_mode & 0o777 == 0o700
    assert named.ensure(named.run) == made_folder
