"""What a package's source says of its architecture: which modules import each other, how many a folder holds."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

Graph = dict[str, set[str]]
"""The modules that each module imports."""


def sources(package: Path) -> dict[str, Path]:
    """The file of each module."""
    names = {path: path.relative_to(package.parent).with_suffix("").parts for path in sorted(package.rglob("*.py"))}
    return {".".join(parts).removesuffix(".__init__"): path for path, parts in names.items()}


def import_graph(package: Path) -> Graph:
    """Each module's imports of others of the package, wherever they stand: in a function, for types alone."""
    files = sources(package)
    return {name: {m for m in _imports(name, path, files) if m in files} - {name} for name, path in files.items()}


def _imports(module: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    home = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = home[: len(home) - node.level + 1] if node.level else []
            origin = ".".join([*above, *filter(None, [node.module])])
            submodules = (f"{origin}.{alias.name}" for alias in node.names)
            yield from (name if name in known else origin for name in submodules)


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one module, the largest first."""
    reachable = {module: _reachable(graph, module) for module in graph}
    groups = {frozenset(m for m in there if module in reachable[m]) for module, there in reachable.items()}
    return sorted((sorted(group) for group in groups if group), key=lambda group: (-len(group), group))


def _reachable(graph: Graph, module: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[module])
    while waiting:
        if (other := waiting.pop()) not in found:
            found.add(other)
            waiting.extend(graph[other])
    return found


def folder_sizes(package: Path) -> Counter[str]:
    """The number of modules in each folder, those of the package's rules aside, which are one a hazard."""
    folders = Counter(path.parent for path in package.rglob("*.py") if path.name != "__init__.py")
    sizes = Counter({folder.relative_to(package).as_posix(): number for folder, number in folders.items()})
    return Counter({folder: number for folder, number in sizes.items() if folder.split("/")[0] != "rules"})


def line_count(package: Path) -> int:
    """The lines of all modules."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in package.rglob("*.py"))
