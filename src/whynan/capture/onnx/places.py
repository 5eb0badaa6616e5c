"""Where a node stands: the place in the user's source, and the names that a report shows."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from whynan.traces import Event

if TYPE_CHECKING:
    from whynan.capture.onnx.execution import Node
    from whynan.records import Site

_BRANCHES: Final = frozenset(("then_branch", "else_branch"))


class Place(NamedTuple):
    """Where an executed node comes from, and what it and its value are called in a report.

    ``module`` is also there where the model carries no line. ``value`` is the name that the file gives to the same
    numbers, where the executed graph calls them otherwise.
    """

    site: Site | None
    library_site: Site | None
    module: str | None
    node: str
    value: str
    op: str


class Sites(Protocol):
    """Says where a node of the executed graph comes from."""

    def site(self, node: Node, output: str) -> tuple[Site | None, Site | None, str | None, str, str, str]:
        """The user's place, the library's, the module, and the names of node, value and operator to show."""
        ...

    def note(self, node: Node) -> str | None:
        """What is said of a node that was made of others: ``was made of ...``; None for one that stands in the file."""
        ...

    def added(self, node: Node) -> bool:
        """Whether the file has no such node: what another one gives is handed on in another form."""
        ...


class NoSites:
    """Knows of no source: nodes are shown by their own names, or by what they write."""

    def site(self, node: Node, output: str) -> tuple[Site | None, Site | None, str | None, str, str, str]:
        """No place, and the names as they are."""
        return None, None, None, node.name or next((o for o in node.outputs if o), node.op), output, node.op

    def note(self, node: Node) -> str | None:  # noqa: ARG002
        """Nothing."""
        return None

    def added(self, node: Node) -> bool:  # noqa: ARG002
        """No."""
        return False


class Places:
    """Asks for each place once, whatever iteration of a body it is met in."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self._known: dict[tuple[object, ...], Place] = {}

    def of(self, node: Node, output: str) -> Place:
        """Where a node stands that has written a value."""
        key = (level_of(node), node.index, output)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Place(*self.sites.site(node, output))
        return found

    def made_of(self, node: Node) -> str | None:
        """What a node was made of, in a sentence; None for one that stands in the file as it is."""
        told = self.sites.note(node)
        return None if told is None else f"{node.op} {told}"

    def is_added(self, node: Node) -> bool:
        """Whether the engine has put a node in, to hand on what another one gives in another form."""
        return self.sites.added(node)

    def event(self, ordinal: int, node: Node, output: str) -> Event:
        """An executed node as the facts tell of it."""
        place = self.of(node, output)
        return Event(
            ordinal,
            place.op,
            "inference",
            with_module(place.site, place.module),
            place.library_site,
            node=path_of(node) + place.node,
            value=place.value or None,
        )


def with_module(site: Site | None, module: str | None) -> Site | None:
    """A site that tells of its module too."""
    if site is None or module is None or site.module is not None:
        return site
    return site.model_copy(update={"module": module})


def level_of(node: Node) -> tuple[tuple[str, str], ...]:
    """The body that a node stands in, whatever the iteration."""
    return tuple((holder, attribute) for holder, attribute, _ in node.body)


def path_of(node: Node) -> str:
    """The way to a node in a body, as it stands before its name: ``loop/body[3]/``; empty in the main graph."""
    found = ""
    for holder, attribute, iteration in node.body:
        turn = "" if attribute in _BRANCHES else f"[{iteration}]"
        found += f"{holder}/{attribute}{turn}/"
    return found
