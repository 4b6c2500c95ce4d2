"""Views of a pod for people: what happened as pure values, and ways to draw them.

`port` says what a view needs of a pod, `model` turns events into what is to be seen, `draw` and
`plain` turn that into text, `screen` is the terminal, and `app` puts them together. Only `screen`
and `app` wait for anything; another front end takes the first two and draws by itself.
"""

from __future__ import annotations
