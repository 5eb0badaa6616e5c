"""Names on one line: short ones for paths, by which they can be told apart, and lists of names."""

from __future__ import annotations

import os
from collections.abc import Sequence

from whynan.source.ownership import without_links
from whynan.traces.json import escape_surrogates


def distinct(paths: Sequence[str]) -> list[str]:
    """The paths without those that lead to the same place as one before them."""
    places: dict[str, str] = {}
    for path in paths:
        places.setdefault(without_links(path), path)
    return list(places.values())


def short_names(paths: Sequence[str]) -> list[str]:
    """The ends of paths, as long as it takes for no two to be equal; a folder's with a slash."""
    parts = [os.path.abspath(path).split(os.sep) for path in paths]
    longest = max(map(len, parts), default=1)
    for length in range(1, longest + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            break
    else:
        names = list(paths)
    return [
        escape_surrogates(f"{name}/" if os.path.isdir(path) else name) for name, path in zip(names, paths, strict=True)
    ]


def excerpt(texts: Sequence[str], most: int) -> str:
    """The first of some texts on one line, and how many more there are."""
    shown = ", ".join(texts[:most])
    return f"{shown} and {len(texts) - most} more" if len(texts) > most else shown
