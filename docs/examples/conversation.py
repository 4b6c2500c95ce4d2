"""A conversation with a pod: the answers as they are streamed, and every compaction that comes.

    python docs/examples/conversation.py MANIFEST "a question" "another one" …

One process asks everything, so that a local model keeps what it has read. `pod run MANIFEST`
without a prompt is the same by hand.
"""

from __future__ import annotations

import asyncio
import sys

from pod import Pod
from pod.protocol import CompactionDone, CompactionFailed, CompactionStart, Envelope, TextDelta

COMPACTION = (CompactionStart, CompactionDone, CompactionFailed)


def show(envelope: Envelope) -> None:
    """Print text as it comes, and a compaction's events as the lines that other programs get."""
    match envelope.data:
        case TextDelta() as delta:
            print(delta.text, end="", flush=True)
        case data if isinstance(data, COMPACTION):
            print(f"\n{envelope.to_json().decode()}", flush=True)


async def settle(pod: Pod) -> None:
    """Wait for the compaction that a run made due, if it did; a dot a second says it goes on."""
    waiting = asyncio.create_task(pod.idle())
    while not (await asyncio.wait({waiting}, timeout=1))[0]:
        print(".", end="", flush=True)


async def converse(manifest: str, questions: list[str]) -> None:
    async with Pod.launch(manifest) as pod:
        pod.listen(show)
        for question in questions:
            print(f"\n> {question}")
            result = await pod.run(question)
            result.raise_for_error()
            status = pod.status()
            print(f"\n[{status.occupancy:,} tokens, compacts over {status.compact_threshold:,}]")
            await settle(pod)


if __name__ == "__main__":
    asyncio.run(converse(sys.argv[1], sys.argv[2:]))
