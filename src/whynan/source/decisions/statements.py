"""The statements that follow a read, with what was read known: do they lead out of a loop, a step or the program?"""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from whynan.source.decisions.values import ABSENT, LED, UNKNOWN, Flags, Value, Values, arithmetic_value
from whynan.source.exported_expressions import callee_name
from whynan.source.syntax import syntax_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import FrameType, FunctionType

    from whynan.source.syntax import Syntax

Does = Literal["ends", "leaves", "skips"]

_EXITS: Final = frozenset("exit quit _exit abort".split())
_STEPS: Final = frozenset(("train_step", "training_step"))
_TRAINS: Final = _STEPS | frozenset("backward step grad manual_backward minimize optimize".split())
"""The last names of calls that differentiate or step."""
_MOST_CALLS: Final = 4
"""So deep are the program's own functions followed."""
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_EXPECTING: Final = frozenset("suppress raises assertRaises assertRaisesRegex".split())
"""Contexts that pass over the exceptions that they are given."""


class Decision(NamedTuple):
    """What a line of the program does because a number is NaN or Inf."""

    does: Does
    file: str
    line: int
    function: str
    names: frozenset[str] = frozenset()
    """Those in the expression that was read."""
    tests: bool = False
    """Whether that expression holds a test of finiteness, so that its answer tells."""
    exits: bool = False
    """Whether the program ends by ``sys.exit``, which few handlers catch."""
    raises: str = ""
    """The name of the exception that it ends by, where the source says it."""
    passes: bool = False
    """Whether what it passes over by raising differentiates or steps."""


class Flow(NamedTuple):
    """How statements end: behind the last, by a jump, or unknown (``lost``); `led`: because of the number."""

    kind: Literal["falls", "break", "continue", "return", "raise", "lost"]
    led: bool = False
    line: int = 0
    value: Value = UNKNOWN
    exits: bool = False
    """Whether it is raised to end the program, as by ``sys.exit``."""
    raises: str = ""
    made: Decision | None = None
    """The decision to raise, where a function has made it that was called."""


_OTHERS: Final = frozenset(
    "KeyboardInterrupt SystemExit StopIteration StopAsyncIteration GeneratorExit ImportError ModuleNotFoundError "
    "OSError IOError FileNotFoundError FileExistsError PermissionError ConnectionError TimeoutError EOFError".split()
)
"""Exceptions of other matters: who catches these alone lets one of a bad number pass."""
_FALLS: Final = Flow("falls")
_LOST: Final = Flow("lost")


class _DecidedError(Exception):
    """A decision in the midst of something."""

    def __init__(self, made: Decision) -> None:
        self.made = made


class _RaisedError(Exception):
    """A function that was called raises because of the number."""

    def __init__(self, made: Decision) -> None:
        self.flow = raise_flow(made)


class FlowAnalysis:
    """The statements of one function, or of a module.

    `place`: its file and name. `names`, `others`: what its names are. `reads`: what is known, by the identity of an
    expression. `flags`: what is stored in attributes of objects. `depth`: so many calls below the read.
    """

    def __init__(
        self,
        place: tuple[str, str],
        syntax: Syntax,
        names: Mapping[str, Any],
        others: Mapping[str, Any],
        *,
        reads: dict[int, Value] | None = None,
        flags: Flags | None = None,
        depth: int = 0,
    ) -> None:
        self._place = place
        self._syntax = syntax
        self._depth = depth
        self._led = 0
        """How many of the branches that are followed were taken because of the number."""
        self._skipped: Decision | None = None
        """A branch that passes a step over because of the number."""
        self._flags: Flags = {} if flags is None else flags
        self.values = Values(reads or {}, names, others, self._call_value, self._flags)

    @classmethod
    def from_frame(
        cls, frame: FrameType, syntax: Syntax, read: ast.expr, value: Value, flags: Flags | None = None
    ) -> FlowAnalysis:
        """The function of a frame, in which an expression was read."""
        place = frame.f_code.co_filename, frame.f_code.co_qualname
        made = cls(place, syntax, frame.f_locals, frame.f_globals, reads={id(read): value}, flags=flags)
        made.values.equal_to(read, value)
        return made

    def follow_read(self, read: ast.expr) -> Decision | Flow:
        """What comes of a read: a decision, or how its function ends."""
        node = self._statement_of(read)
        return _LOST if node is None else self._run_analysis(lambda: self._follow_from(node, names_in(read)))

    def follow_exception(self, call: ast.AST, made: Decision) -> Decision | Flow:
        """What comes of an exception that a call raises: the same decision, where nothing in this function stops it."""
        node = self._statement_of(call)
        return (
            _LOST
            if node is None
            else self._run_analysis(lambda: self._follow_outward(raise_flow(made), node, frozenset()))
        )

    def _statement_of(self, node: ast.AST) -> ast.stmt | None:
        return next((each for each in (node, *self._syntax.above(node)) if isinstance(each, ast.stmt)), None)

    def _run_analysis(self, follow: Callable[[], Decision | Flow]) -> Decision | Flow:
        try:
            flow = follow()
        except _DecidedError as decided:
            return decided.made
        except _RaisedError as error:
            return error.flow.made or _LOST
        except RecursionError:
            return _LOST
        return flow if isinstance(flow, Decision) else self._skipped or flow

    # -- outward -----------------------------------------------------------------------------------------------------

    def _follow_from(self, node: ast.stmt, read: frozenset[str]) -> Decision | Flow:
        """From a statement on, through the blocks around it."""
        return self._follow_outward(self._statement(node), node, read)

    def _follow_outward(self, flow: Flow, node: ast.stmt, read: frozenset[str]) -> Decision | Flow:
        """From the end of a statement on."""
        left = False
        while True:
            if flow.kind == "falls":
                flow = self._block(self._next_statements(node))
            parent = self._syntax.parents.get(node)
            if isinstance(parent, (ast.ExceptHandler, ast.match_case)):
                parent = self._syntax.parents[parent]
            if flow.kind == "lost":
                return flow
            if not isinstance(parent, ast.stmt) or isinstance(parent, _SCOPES):
                return self._out_of_function(flow, node)
            if isinstance(parent, ast.Try) and flow.kind == "raise" and node in parent.body:
                flow = self._handle_exception(parent, flow, node.lineno if flow.made else flow.line, left=left)
            elif isinstance(parent, ast.With) and flow.kind == "raise" and (expected := _expected(parent)):
                flow = self._handle_exception(expected, flow, node.lineno if flow.made else flow.line, left=left)
            elif isinstance(parent, _LOOPS) and flow.kind == "raise":
                left = left or self._trains([parent])
            elif isinstance(parent, _LOOPS) and _goes_over(parent, read) and flow.kind in ("break", "continue"):
                # a loop over what is tested computes nothing anew: what was noted in it counts behind it
                flow = _FALLS
            elif isinstance(parent, ast.For) and flow.kind == "falls" and not self._trains([parent]):
                # further turns may store other values, but what was noted because of the number stays
                self.values.forget(parent, but_constants=True)
            elif isinstance(parent, _LOOPS):
                return self._out_of_loop(flow, parent)
            node = parent

    def _handle_exception(self, node: ast.Try, flow: Flow, line: int, *, left: bool = False) -> Flow:
        """What becomes of an exception in a ``try``, at a line of it; `left`: it has left a loop that trains."""
        handler = next((each for each in node.handlers if flow.led and _catches(each, flow)), None)
        if handler is None:
            return flow
        self._led += 1
        try:
            after = self._block(handler.body)
        finally:
            self._led -= 1
        if after.kind == "raise":
            return flow._replace(exits=after.exits, raises=after.raises or flow.raises)
        if after.kind == "falls" and left:
            raise _DecidedError(self._decision("leaves", flow.line))
        passes = (flow.made is not None and flow.made.passes) or self._trains(_behind_line(node, line))
        if after.kind in ("falls", "continue") and passes:
            made = flow.made or self._decision("skips", flow.line)
            raise _DecidedError(made._replace(does="skips"))
        return after

    def _out_of_loop(self, flow: Flow, loop: ast.stmt) -> Decision | Flow:
        """A turn of a loop is over; a ``while`` asks again."""
        test = self.values.evaluate(loop.test) if isinstance(loop, ast.While) and flow.kind == "falls" else UNKNOWN
        stops = test.known and test.led and not test.value and isinstance(loop, ast.While)
        if not (stops or (flow.led and flow.kind != "falls")):
            # what a function gives may decide in the one that has called it
            return flow if flow.kind == "return" else _LOST
        # a turn that has made its step skips nothing by going on to the next one
        over = _behind_line(loop, flow.line) if flow.kind == "continue" else [loop]
        if not self._trains(over):
            return flow if flow.kind == "return" else _LOST
        return self._decision("skips" if flow.kind == "continue" else "leaves", loop.lineno if stops else flow.line)

    def _out_of_function(self, flow: Flow, last: ast.stmt) -> Decision | Flow:
        if flow.led and flow.kind == "raise":
            passes = self._trains(self._statements_below(last.lineno if flow.made else flow.line, last))
            made = flow.made or self._decision("ends", flow.line, exits=flow.exits, raises=flow.raises)
            return made._replace(passes=made.passes or passes)
        if (
            flow.led
            and flow.kind == "return"
            and (self._gives_no_loss(flow) or self._trains(self._statements_below(flow.line, last)))
        ):
            return self._decision("skips", flow.line)
        return flow

    def _gives_no_loss(self, flow: Flow) -> bool:
        """Whether a step function gives None: the library that has called it makes no step of that (Lightning)."""
        name = self._place[1].rpartition(".")[2]
        return name in _STEPS and flow.value.known and flow.value.value is None

    def _next_statements(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements behind one in its block."""
        parent: Any = self._syntax.parents[statement]
        for name in ("body", "orelse", "finalbody"):
            block: list[ast.stmt] = getattr(parent, name, [])
            if statement in block:
                return block[block.index(statement) + 1 :]
        return []

    def _statements_below(self, line: int, last: ast.stmt) -> list[ast.stmt]:
        """The statements of a function below a line."""
        scope: ast.AST = last
        while not isinstance(scope, _SCOPES):
            scope = self._syntax.parents[scope]
        return [] if isinstance(scope, ast.Lambda) else _behind_line(scope, line)

    # -- statements --------------------------------------------------------------------------------------------------

    def _block(self, statements: Iterable[ast.stmt]) -> Flow:
        for statement in statements:
            flow = self._statement(statement)
            if flow.kind != "falls":
                return flow
        return _FALLS

    def _statement(self, node: ast.stmt) -> Flow:
        try:
            return self._execute(node)
        except _RaisedError as error:
            return error.flow

    def _execute(self, node: ast.stmt) -> Flow:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                return self._branch(node.lineno, self.values.evaluate(test), body, orelse)
            case ast.Assert(test=test):
                found = self.values.evaluate(test)
                fails = found.known and found.led and not found.value
                return Flow("raise", led=True, line=node.lineno, raises="AssertionError") if fails else _FALLS
            case ast.Raise(exc=error):
                return Flow("raise", self._led > 0, node.lineno, raises=_raised_name(error))
            case ast.Break():
                return Flow("break", self._led > 0, node.lineno)
            case ast.Continue():
                return Flow("continue", self._led > 0, node.lineno)
            case ast.Return(value=value):
                found = Value(known=True) if value is None else self.values.evaluate(value)
                found = found._replace(led=found.led or self._led > 0)
                return Flow("return", self._led > 0, node.lineno, found)
            case ast.Expr(value=ast.Call() as call) if self._led and callee_name(call) in _EXITS:
                return Flow("raise", led=True, line=node.lineno, exits=True)
            case ast.With(body=body) | ast.AsyncWith(body=body):
                return self._block(body)
            case ast.Try(body=body):
                flow = self._block(body)
                line = node.lineno if flow.made else flow.line
                return self._handle_exception(node, flow, line) if flow.kind == "raise" else flow
            case ast.While(test=test):
                found = self.values.evaluate(test)
                if found.known and found.led and not found.value and self._trains([node]):
                    raise _DecidedError(self._decision("leaves", node.lineno))
                self.values.forget(node)
            case ast.For(target=target, iter=over, body=body) if self.values.element(
                target, self.values.evaluate(over)
            ):
                flow = self._block(body)
                return flow if flow.kind in ("raise", "return") and flow.led else _FALLS
            case ast.For() | ast.AsyncFor() | ast.Match():
                self.values.forget(node)
            case _:
                self._execute_assignment(node)
        return _FALLS

    def _execute_assignment(self, node: ast.stmt) -> None:
        """A statement that gives names values, or only computes."""
        values = self.values
        match node:
            case ast.Assign(targets=targets, value=value):
                found = values.evaluate(value)
                # what is noted in a branch that was taken for it
                found = found._replace(led=found.led or self._led > 0)
                for target in targets:
                    values.store(target, found)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                values.store(target, values.evaluate(value))
            case ast.AugAssign(target=target, op=op, value=value):
                values.store(target, arithmetic_value(op, values.evaluate(target), values.evaluate(value)))
            case ast.Expr(value=value):
                values.evaluate(value)
            case _:
                pass

    def _branch(self, line: int, test: Value, body: list[ast.stmt], orelse: list[ast.stmt]) -> Flow:
        if not test.known:
            for statement in (*body, *orelse):
                self.values.forget(statement)
            return _FALLS
        taken, other = (body, orelse) if test.value else (orelse, body)
        self._led += test.led
        try:
            flow = self._block(taken)
        finally:
            self._led -= test.led
        if flow.kind == "falls" and test.led and _trains_itself(other) and not self._trains(taken):
            self._skipped = self._skipped or self._decision("skips", line)
        return flow

    def _decision(self, does: Does, line: int, *, exits: bool = False, raises: str = "") -> Decision:
        return Decision(does, self._place[0], line, self._place[1], exits=exits, raises=raises)

    # -- functions of the program's ----------------------------------------------------------------------------------

    def _trains(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether statements differentiate or step, themselves or in functions that they call."""
        if _trains_itself(statements):
            return True
        for each in (call for statement in statements for call in ast.walk(statement) if isinstance(call, ast.Call)):
            inside = self._callee_analysis(self.values.function(each))
            if inside is not None and inside[0]._trains(inside[1].body):
                return True
        return False

    def _callee_analysis(
        self, function: FunctionType | None, call: ast.Call | None = None
    ) -> tuple[FlowAnalysis, ast.FunctionDef] | None:
        """The statements of a function that is called."""
        if function is None or self._depth >= _MOST_CALLS:
            return None
        code = function.__code__
        syntax = syntax_of(code.co_filename)
        definition = _definition(syntax, code.co_name, code.co_firstlineno)
        if definition is None:
            return None
        place = code.co_filename, code.co_qualname
        names = {} if call is None else self._parameter_objects(call, definition)
        inside = FlowAnalysis(place, syntax, names, function.__globals__, flags=self._flags, depth=self._depth + 1)
        return inside, definition

    def _parameter_objects(self, call: ast.Call, definition: ast.FunctionDef) -> dict[str, object]:
        """The objects that the parameters of a function stand for."""
        given = {name: self.values.object(value) for name, value in _arguments(call, definition)}
        return {name: value for name, value in given.items() if value is not ABSENT}

    def _call_value(self, node: ast.Call) -> Value:
        """What a function of the program's gives that the number is handed to; it may decide itself."""
        found = self._callee_analysis(self.values.function(node), node)
        if found is None:
            return LED
        inside, definition = found
        for name, argument in _arguments(node, definition):
            inside.values.bind(name, self.values.evaluate(argument))
        flow = inside._block(definition.body)
        self._skipped = self._skipped or inside._skipped
        if flow.kind == "raise" and flow.led:
            made = flow.made or inside._decision("ends", flow.line, exits=flow.exits, raises=flow.raises)
            passes = inside._trains(_behind_line(definition, flow.line))
            raise _RaisedError(made._replace(passes=made.passes or passes))
        return flow.value if flow.kind == "return" else Value(known=True)


def _arguments(call: ast.Call, definition: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """The parameters of a function with what a call gives for them, the object of a method among them."""
    names = [argument.arg for argument in (*definition.args.posonlyargs, *definition.args.args)]
    given = list(call.args)
    if names and names[0] in ("self", "cls"):
        if definition.name == "__call__" and callee_name(call) != "__call__":
            given.insert(0, call.func)
        elif isinstance(call.func, ast.Attribute):
            given.insert(0, call.func.value)
    return [*zip(names, given, strict=False), *((keyword.arg or "", keyword.value) for keyword in call.keywords)]


def _behind_line(block: Any, line: int) -> list[ast.stmt]:
    """The statements of a function or a loop that do not end at a line or before it."""
    body: list[ast.stmt] = block.body
    return [each for each in body if (each.end_lineno or 0) > line]


def _trains_itself(statements: Iterable[ast.stmt]) -> bool:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return any(isinstance(node, ast.Call) and callee_name(node) in _TRAINS for node in nodes)


def _definition(syntax: Syntax, name: str, line: int) -> ast.FunctionDef | None:
    for node in syntax.parents:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == line:
                return node
    return None


def raise_flow(made: Decision) -> Flow:
    """The exception that a function has decided to raise."""
    return Flow("raise", led=True, line=made.line, exits=made.exits, raises=made.raises, made=made)


def _raised_name(error: ast.expr | None) -> str:
    """The last name of what is raised: of ``raise errors.Lost("x")`` it is ``Lost``."""
    named = error.func if isinstance(error, ast.Call) else error
    return ast.unparse(named).rpartition(".")[2] if isinstance(named, ast.Name | ast.Attribute) else ""


def _catches(handler: ast.ExceptHandler, flow: Flow) -> bool:
    kinds = frozenset({"BaseException"}) if handler.type is None else names_of(handler.type)
    if flow.exits:
        return bool(kinds & {"BaseException", "SystemExit"})
    if flow.raises in kinds:
        return True
    error = getattr(builtins, flow.raises, None)
    known = [getattr(builtins, kind, None) for kind in kinds]
    if isinstance(error, type) and all(isinstance(kind, type) for kind in known):
        return any(isinstance(kind, type) and issubclass(error, kind) for kind in known)
    return bool(kinds - _OTHERS)


def _expected(block: ast.With) -> ast.Try | None:
    """A block that passes over an exception (``contextlib.suppress``, ``pytest.raises``) as the ``try`` that it is."""
    kinds: list[ast.expr] = []
    for item in block.items:
        match item.context_expr:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=given) if name in _EXPECTING:
                first = given if name == "suppress" else given[:1]
                kinds += (k for one in first for k in (one.elts if isinstance(one, ast.Tuple) else [one]))
            case _:
                pass
    if not kinds:
        return None
    handler = ast.ExceptHandler(type=ast.Tuple(elts=kinds), name=None, body=[ast.Pass()])
    return ast.copy_location(ast.Try(body=block.body, handlers=[handler], orelse=[], finalbody=[]), block)


def _goes_over(loop: ast.stmt, read: frozenset[str]) -> bool:
    """Whether a loop goes over what was read."""
    return isinstance(loop, ast.For | ast.AsyncFor) and bool(read & names_in(loop.target))


def names_of(node: ast.expr) -> frozenset[str]:
    """The last names of an expression of types: of ``(OSError, errors.Lost)`` OSError and Lost."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return frozenset(ast.unparse(part).rpartition(".")[2] for part in parts)


def names_in(node: ast.AST) -> frozenset[str]:
    """The names that code reads or stores."""
    return frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
