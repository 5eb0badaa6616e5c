"""Call sites: a walk over the frames to the user's innermost one, and the state of the thread around it."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from torch import Tensor

from whynan.ops.spelling import base_of
from whynan.source.definitions import argument_definition, argument_numbers
from whynan.source.exported_expressions import BODY
from whynan.source.expressions import first_argument, operand_expressions
from whynan.source.ownership import Owner, owner_of
from whynan.source.positions import resolve
from whynan.source.traced_lines import TracedOperation, traced_frames

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from types import CodeType, FrameType

    from whynan.capture.torch.operators import Operator
    from whynan.records import Phase, Site
    from whynan.source.definitions import Definition, Numbers


# -- Where an event stands: a walk over the frames to the user's innermost one, cheap enough for every event -----------


_owners: dict[int, tuple[CodeType, int]] = {}


GRAPH: Final = len(Owner)
"""Owner of the code that torch.fx makes of a graph: each of its lines was traced from one of the program."""

_OVERRIDES: Final = frozenset({"__torch_function__", "__torch_dispatch__"})


def _learn(code: CodeType) -> int:
    owner = GRAPH if code.co_filename.startswith(BODY) else int(owner_of(code.co_filename))
    if owner == Owner.LIBRARY and code.co_name in _OVERRIDES:
        # what a tensor of a library's hands on stands between an operation and the library's code that asked for it
        owner = int(Owner.TORCH)
    # the code object is kept, so that its id stays its own
    _owners[id(code)] = (code, owner)
    return owner


SiteKey: TypeAlias = "tuple[int, int, int, int]"
"""Ids of code and instruction of the user's innermost frame, and of the library's within it (0, 0: none)."""


def site_key(frame: FrameType | None) -> SiteKey | None:
    """The key of the site that a frame stands at; of an operation in a graph, the one that it was traced from."""
    library = 0
    library_instruction = 0
    owners = _owners
    while frame is not None:
        code = frame.f_code
        known = owners.get(id(code))
        owner = known[1] if known is not None else _learn(code)
        if owner == Owner.USER:
            return id(code), frame.f_lasti, library, library_instruction
        if owner == Owner.LIBRARY and not library:
            library, library_instruction = id(code), frame.f_lasti
        elif owner == GRAPH and (traced := _traced_key(frame)) is not None:
            return traced
        frame = frame.f_back
    if library:
        return library, library_instruction, 0, 0
    return None


_traced: dict[tuple[int, int], SiteKey | None] = {}


def _traced_key(frame: FrameType) -> SiteKey | None:
    """The site that the graph's operation at which a frame stands was traced from; None where it is not known."""
    key = id(frame.f_code), frame.f_lasti
    if key not in _traced:
        node = _node_at(frame)
        _traced[key] = None if node is None else _key_of_node(node)
    return _traced[key]


def _node_at(frame: FrameType) -> torch.fx.Node | None:
    """The node of a graph whose code a frame runs."""
    names = frame.f_locals
    module: Any = names.get("self")
    if type(names) is dict:
        # before Python 3.13 the frame keeps it, with all tensors that it names
        names.clear()
    if not isinstance(module, torch.fx.GraphModule):
        return None
    lines: dict[int, int | None] = getattr(module, "_lineno_map", None) or {}
    place = lines.get(frame.f_lineno - getattr(module, "_prologue_start", 0))
    return None if place is None else next(itertools.islice(module.graph.nodes, place, None), None)


def _key_of_node(node: torch.fx.Node) -> SiteKey | None:
    """The key of the user's innermost site in the stack trace that a node carries."""
    mine = _traced_operation(node)
    nodes = list(node.graph.nodes)
    before = nodes[: nodes.index(node)]
    if "autograd_backward" in node.meta:
        before = nodes[len(before) + 1 :]
    turns = {_source_of(n)[0] for n in before if _traced_operation(n) == mine} - {_source_of(node)[0]}
    library = library_instruction = 0
    for code, instruction in traced_frames(mine._replace(turn=len(turns))):
        owner = _learn(code)
        if owner == Owner.USER:
            return id(code), instruction, library, library_instruction
        if owner == Owner.LIBRARY and not library:
            library, library_instruction = id(code), instruction
    return None


def _source_of(node: torch.fx.Node) -> tuple[str, Any]:
    """The node of the program's call that a node is a part of, or differentiates: its name, and what is called."""
    calls: list[tuple[str, Any]] = node.meta.get("fwd_source_fn_stack") or node.meta.get("source_fn_stack") or []
    return calls[-1] if calls else (node.name, node.target)


def _traced_operation(node: torch.fx.Node) -> TracedOperation:
    target = _source_of(node)[1]
    if isinstance(target, torch._ops.OpOverload):
        name = base_of(str(target))
    else:
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return TracedOperation(node.meta.get("stack_trace") or "", name)


ENGINE: dict[int, CodeType] = {}
"""The code of the wrapper that the engine is called through, by its id: to hash code takes longer than an event may."""


def is_in_hook(frame: FrameType | None) -> bool:
    """Whether code of the user's (a hook, a custom backward) or of a graph is between the engine and what it runs."""
    owners = _owners
    while frame is not None:
        code = frame.f_code
        if id(code) in ENGINE:
            return False
        known = owners.get(id(code))
        owner = known[1] if known is not None else _learn(code)
        if owner == Owner.USER or (owner == GRAPH and _traced_key(frame) is not None):
            return True
        frame = frame.f_back
    return False


def is_own_step(optimizer: Any) -> bool:
    """Whether the step of an optimizer is code of the user's."""
    step: Any = inspect.unwrap(type(optimizer).step)
    code = getattr(step, "__code__", None)
    return code is not None and owner_of(code.co_filename) == Owner.USER


class Sites:
    """Sites by number; resolved to lines and columns only when a report asks."""

    def __init__(self) -> None:
        self._numbers: dict[SiteKey | None, int] = {None: 0}
        self._keys: list[SiteKey | None] = [None]

    def __len__(self) -> int:
        return len(self._keys)

    def current_site(self, depth: int = 1) -> int:
        """The number of the site that the frame `depth` above the caller stands at."""
        key = site_key(sys._getframe(depth))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return number

    def key(self, number: int) -> SiteKey | None:
        """What makes a site one: code and instruction."""
        return self._keys[number]

    def expressions(self, number: int, operator: str, names: Sequence[str], numbers: Collection[str]) -> dict[str, str]:
        """The source text of an operator's arguments; empty where the operator stands in a library."""
        key = self._keys[number]
        if key is None or key[2]:
            return {}
        return operand_expressions(_owners[key[0]][0], key[1], operator, names, numbers=numbers)

    def first_argument(self, number: int) -> str | None:
        """The source text of the first argument of the call that a site is; None where it stands in a library."""
        key = self._keys[number]
        return None if key is None or key[2] else first_argument(_owners[key[0]][0], key[1])

    def number_written(self, number: int, index: tuple[int, ...] | None) -> float | None:
        """The number that the source writes for an element in the first argument of the call at a site.

        Where the index is not known, the first number, of an argument that is made of nothing but numbers.
        """
        key = self._keys[number]
        given = None if key is None or key[2] else argument_numbers(_owners[key[0]][0], key[1])
        if index is None:
            return next(iter(_flat(given)), None) if None not in _flat(given) else None
        for place in index:
            if not isinstance(given, list) or place >= len(given):
                return None
            given = given[place]
        return given if isinstance(given, float) else None

    def definition(self, number: int) -> tuple[Definition, CodeType] | None:
        """What the first argument of the call at a site surely stands for, and the code that it stands in."""
        key = self._keys[number]
        if key is None or key[2]:
            return None
        code = _owners[key[0]][0]
        found = argument_definition(code, key[1])
        return None if found is None else (found, code)

    def resolve(self, number: int, module: str | None) -> tuple[Site | None, Site | None]:
        """The user's site and, where the event stands in a library, the library's."""
        key = self._keys[number]
        if key is None:
            return None, None
        code, instruction, library, library_instruction = key
        site = resolve(_owners[code][0], instruction)
        if module is not None:
            site = site.model_copy(update={"module": module})
        if not library:
            return site, None
        return site, resolve(_owners[library][0], library_instruction)


def _flat(numbers: Numbers | None) -> list[float | None]:
    """The numbers of nested lists; None for what is none."""
    return [one for part in numbers for one in _flat(part)] if isinstance(numbers, list) else [numbers]


# -- Per-thread state --------------------------------------------------------------------------------------------------


FORWARD, BACKWARD, ACCUMULATION, OPTIMIZER = range(4)
PHASES: tuple[Phase, ...] = ("forward", "backward", "accumulation", "optimizer")
NODES_MASK = (1 << 17) - 1

_sequence_nr = torch.autograd._get_sequence_nr


NodeEntry: TypeAlias = "tuple[int, int, Operator, int, int]"
"""Of a node of the graph: its sequence number, and site, operator, ordinal and module of the operation behind it."""


def forward_number(node: Any) -> int:
    """The sequence number of the forward operation that a node differentiates.

    An operation in place on a view has two nodes: its own, and after it the ``CopySlices`` that runs it.
    """
    number: int = node._sequence_nr()
    return number - 1 if type(node).__name__ == "CopySlices" else number


@dataclass(slots=True)
class Lanes:
    """The lanes of a trace: of the program's threads, and of the engine's own, one for each device."""

    program: list[Lane] = field(default_factory=lambda: [])
    engines: list[Lane] = field(default_factory=lambda: [])
    key: object = field(default_factory=object)
    """Under which the entries of this trace, and of no other, stand in the metadata of nodes."""


def _with_number(lanes: Iterable[Lane], number: int) -> list[NodeEntry]:
    """The entries of nodes of a number."""
    known = (lane.nodes.get(number & NODES_MASK) for lane in lanes)
    return [entry for entry in known if entry is not None and entry[0] == number]


def _is_node_of(node: Any, base: str) -> bool:
    """Whether a node is named after an operation: ``NllLossBackward0`` after ``nll_loss_forward``."""
    name = type(node).__name__.rpartition("Backward")[0].lower()
    return base.replace("_", "") in (name, f"{name}forward", f"{name}impl")


class Lane:
    """What one thread is in the midst of: its autograd nodes' sites, module calls, backward and optimizer step."""

    def __init__(self, lanes: Lanes | None = None) -> None:
        self.lanes = Lanes() if lanes is None else lanes
        self.of_engine = False
        self.labels = False
        """Whether nodes of this thread are labelled."""
        self._unlabelled: tuple[weakref.ref[Tensor], NodeEntry] | None = None
        self.running = True
        """Whether its thread may call the engine still."""
        self.sequence = _sequence_nr()
        # numbers of nodes that a clone has just been given, and its site
        self.fresh: tuple[int, int, int] | None = None
        self.nodes: dict[int, NodeEntry] = {}
        self.modules: list[int] = []
        self.module = 0
        self.create_graph = False
        self.engine_depth = 0
        self.backward: Any = None
        self.optimizer: Any = None
        self.optimizer_site = 0
        self.optimizer_own = False
        """Whether the class of the optimizer under way is the program's own: its step's own lines are told then."""
        self.closure = False
        self.loading = 0
        """How many loaders are fetching a batch, one inside the other."""
        self.loss_labels: frozenset[int] = frozenset()

    def begin(self) -> None:
        """From here on this thread is looked at; autograd has numbered nodes before."""
        self.sequence = _sequence_nr()

    def end(self) -> None:
        """The thread has ended."""
        self.running = False
        self.nodes, self.backward = {}, None
        if self in self.lanes.program:
            self.lanes.program.remove(self)

    def follow(self, other: Lane) -> None:
        """What a thread of the engine's works for: the backward that another thread has begun."""
        self.backward = other.backward
        self.create_graph = other.create_graph
        self.loss_labels = other.loss_labels

    def entry(self, node: Any) -> NodeEntry | None:
        """What is known of the forward operation that a node differentiates."""
        number = forward_number(node)
        if self.lanes.engines:
            return self._of_any_thread(node, number)
        known = self.nodes.get(number & NODES_MASK)
        return known if known is not None and known[0] == number else None

    def _of_any_thread(self, node: Any, number: int) -> NodeEntry | None:
        """The entry of a node of the program's threads or of the engine's, each of which numbers nodes by itself.

        Those that the engine makes in its threads are labelled, but for views; None where it may be one of two.
        """
        for lane in self.lanes.engines:
            lane.label_node()
        if any(lane.labels for lane in self.lanes.engines):
            labelled: NodeEntry | None = node.metadata.get(self.lanes.key)
            if labelled is not None:
                return labelled
        program, engine = (_with_number(lanes, number) for lanes in (self.lanes.program, self.lanes.engines))
        if len(program) == 1 and not engine:
            return program[0]
        found = [entry for entry in (*program, *(e for e in engine if e[2].view)) if _is_node_of(node, entry[2].base)]
        return found[0] if len(found) == 1 else None

    def note_node(self, out: Any, entry: NodeEntry) -> None:
        """In a thread of the engine's: what an operation gave, which has its node when the operation is over."""
        self.label_node()
        first = next((o for o in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(o, Tensor)), None)
        self._unlabelled = None if first is None else (weakref.ref(first), entry)

    def label_node(self) -> None:
        """Label the node of the last operation."""
        if self._unlabelled is None:
            return
        (made, entry), self._unlabelled = self._unlabelled, None
        tensor = made()
        with contextlib.suppress(RuntimeError):  # autograd refuses to tell of some views
            node: Any = None if tensor is None else tensor.grad_fn
            if node is not None:
                node.metadata[self.lanes.key] = entry
                self.labels = True

    def saved_itself(self, operator: Operator, site: int, ordinal: int) -> None:
        """An operation in place may save a copy of its operand first: the nodes are its own, not the copy's."""
        assert self.fresh is not None
        start, end, where = self.fresh
        self.fresh = None
        if operator.writes_first and site == where:
            for number in range(max(start, end - 64), end):
                self.nodes[number & NODES_MASK] = (number, site, operator, ordinal, self.module)
