"""Sessions of other agents read, and ours written for others; nothing is lost that fits an item."""

from __future__ import annotations

from .errors import NotImportable, UnknownFormat
from .exporting import EXPORT_FORMATS, export_session
from .formats import FORMATS
from .importing import import_file
from .publishing import Imported
from .tally import Tally

__all__ = [
    "EXPORT_FORMATS",
    "FORMATS",
    "Imported",
    "NotImportable",
    "Tally",
    "UnknownFormat",
    "export_session",
    "import_file",
]
