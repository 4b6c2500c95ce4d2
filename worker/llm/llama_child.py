"""The process that holds a local model: llama.cpp's own server, alive as long as its parent.

It runs alone (`python -P llama_child.py`) and imports nothing of ours, so that it starts fast.
llama.cpp holds the interpreter lock while it loads, and abort()s on some broken files: neither may
happen in the process that runs the agent.

stdin: one JSON object (`path, context, threads, chat_template, api_key`), then silence until the
parent goes.
stdout: one JSON object, `{"base_url"}` or `{"failure", "reason"}`.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from typing import IO

CACHED_PROMPTS_MIB = 1024
"""Memory for the prompts of conversations that are not the current one (llama.cpp: cache_ram)."""


def main() -> int:
    """Serve one model until stdin ends; return the process's exit code."""
    answer = _take_stdout()
    order = json.loads(sys.stdin.buffer.readline())
    _die_with_stdin()
    # llama.cpp would start a debugger, if there is one, to print where it aborted.
    os.environ["GGML_NO_BACKTRACE"] = "1"
    try:
        server, base_url = _serve(order)
    except ImportError as error:
        return _say(answer, {"failure": "extra", "reason": str(error)})
    except RuntimeError as error:
        return _say(answer, {"failure": "load", "reason": str(error)})

    _say(answer, {"base_url": base_url})
    _close_log()
    sys.stdin.buffer.read()
    # Taking the server down waits for requests in flight; nobody is left to read their answers.
    del server
    os._exit(0)


def _take_stdout() -> IO[str]:
    """Keep stdout for the one answer; what a native library prints goes to stderr."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answer


def _die_with_stdin() -> None:
    """Have the kernel end this process when the parent's end of stdin closes, also mid-load."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)


def _close_log() -> None:
    """Let nothing grow the parent's log file; requests are answered with their own errors."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _serve(order: dict[str, object]) -> tuple[object, str]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = order["path"]
    params.n_ctx = order["context"]
    params.api_keys = [order["api_key"]]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = 1
    params.cache_ram_mib = CACHED_PROMPTS_MIB
    params.verbosity = 1  # errors only
    params.ui = False
    params.endpoint_slots = False
    if order["chat_template"] is not None:
        params.chat_template = order["chat_template"]
    if order["threads"]:
        params.cpuparams.n_threads = order["threads"]
        params.cpuparams_batch.n_threads = order["threads"]

    server = xllamacpp.Server(params)
    return server, f"{server.listening_address}/v1"


def _say(answer: IO[str], message: dict[str, str]) -> int:
    answer.write(json.dumps(message) + "\n")
    answer.close()
    return 1 if "failure" in message else 0


if __name__ == "__main__":
    sys.exit(main())
