"""What is asked of a pod, as the message that it becomes."""

from __future__ import annotations

from worker.items import Image, Text, UserMessage, new_uid
from worker.text import is_blank


def prompt_message(prompt: str | UserMessage, images: tuple[Image, ...] = ()) -> UserMessage:
    """Return the message that a prompt becomes; one that is a message already stays as it is.

    Raises:
        ValueError: It shows nothing.
    """
    message = prompt if isinstance(prompt, UserMessage) else _made(prompt, images)
    if is_blank(message.text) and not any(isinstance(p, Image) for p in message.parts):
        text = "the prompt is empty"
        raise ValueError(text)

    return message


def _made(text: str, images: tuple[Image, ...]) -> UserMessage:
    parts: tuple[Text | Image, ...] = (Text(text), *images) if text else images
    return UserMessage(uid=new_uid(), parts=parts)
