"""Writes a replacement as source text, as the source around it is written."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from whynan.expr.log_space import moved_operand
from whynan.expr.match import Missing, is_divisor
from whynan.expr.pattern import fold_constant, subscript_source
from whynan.expr.term import MULTIPLIED, Term, negate, sum_of
from whynan.ops import signatures
from whynan.ops.table import TORCH
from whynan.source.calls import operator_of
from whynan.source.definitions import is_declared_number
from whynan.source.text import apply_edits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.expr.match import Match
    from whynan.fixes.python.repeated_parts import Lets
    from whynan.source.text import Place

_SYMBOLS: Final[dict[type[ast.operator], tuple[str, int]]] = {
    ast.Add: ("+", 3),
    ast.Sub: ("-", 3),
    ast.Mult: ("*", 4),
    ast.Div: ("/", 4),
    ast.Pow: ("**", 6),
}
_COMPARED: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
ATOM: Final = 8
_OVER_ALL: Final = frozenset({"softmax", "log_softmax", "logsumexp"})
_SOFTMAX: Final = frozenset({"softmax", "log_softmax"})
_OF_NUMBERS: Final = frozenset({"exp", "log", "log1p", "sqrt"})
"""What ``math`` has of operators, for numbers of Python's."""
_OF_NUMPY: Final = {"dim": "axis", "keepdim": "keepdims"}
"""NumPy's names of parameters."""


_CONSTANTS: Final = {
    value: text
    for text, value in (
        ("math.pi", math.pi),
        ("2 * math.pi", 2 * math.pi),
        ("math.sqrt(2)", math.sqrt(2)),
        ("math.sqrt(math.pi)", math.sqrt(math.pi)),
        ("math.sqrt(2 * math.pi)", math.sqrt(2 * math.pi)),
        ("math.log(2)", math.log(2)),
        ("math.log(10)", math.log(10)),
        ("math.log(math.pi)", math.log(math.pi)),
        ("math.log(2 * math.pi)", math.log(2 * math.pi)),
        ("0.5 * math.log(2 * math.pi)", 0.5 * math.log(2 * math.pi)),
    )
}
"""Numbers that formulas are made of, as a reader knows them."""
Naming = Literal["above", "within", "nowhere"]
"""Where what is read several times is given a name."""
NAMINGS: Final[tuple[Naming, ...]] = ("above", "within", "nowhere")


class UnwritableError(Exception):
    """A replacement cannot be written there, with the reason."""


@dataclass(frozen=True)
class Written:
    """Text of an expression and how tightly it binds."""

    text: str
    binds: int = ATOM

    def within(self, binds: int) -> str:
        """The text as an operand of what binds so tightly."""
        return self.text if self.binds >= binds else f"({self.text})"


def binding(text: str) -> int:
    """How tightly the outermost operator of an expression's text binds."""
    node = ast.parse(f"({text}\n)", mode="eval").body
    match node:
        case ast.BinOp(op=symbol):
            return _SYMBOLS.get(type(symbol), ("", 1))[1]
        case ast.UnaryOp(op=ast.Not()):
            return 1
        case ast.UnaryOp():
            return 5
        case ast.Name() | ast.Call() | ast.Attribute() | ast.Subscript() | ast.List() | ast.JoinedStr():
            return ATOM
        case ast.Tuple():
            return ATOM if text.lstrip().startswith("(") else 0
        case ast.Constant(value=value):
            # a number's dot is not an attribute's
            return ATOM if not isinstance(value, int) or isinstance(value, bool) else ATOM - 1
        case _:
            return 0


def is_simple(text: str) -> bool:
    """Whether an expression may be read twice as well as once: a name, a chain of attributes, a constant."""
    node = ast.parse(f"({text}\n)", mode="eval").body
    while isinstance(node, ast.Attribute):
        node = node.value
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(isinstance(each, (ast.Name, ast.Constant)) for each in node.elts)
    return isinstance(node, (ast.Name, ast.Constant))


@dataclass
class Writer:
    """Writes the replacement of one match; ``methods`` is the style of the source around it.

    ``imports`` collects the modules that have to be imported. ``naming`` says where what is read several times is
    given a name: on a line above the statement, which ``above`` collects, on its way, or not at all. ``lets`` are
    such parts of the replacement, ``called`` what variables are called, and ``moved`` what is read on lines above.
    ``numbers`` are expressions that gave numbers of Python's, of which ``where`` makes no choice.
    """

    place: Place
    methods: bool
    visible: dict[str, str]
    naming: Naming = "above"
    numbers: frozenset[str] = frozenset()
    lets: Lets = field(default_factory=dict[str, ast.expr])
    called: dict[str, str] = field(default_factory=dict[str, str])
    above: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    moved: list[Term] = field(default_factory=list[Term])
    names: dict[str, str] = field(default_factory=dict[str, str])
    imports: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self._bound: dict[str, str] = {}
        self._factors: dict[str, str] = {}
        self._depth = 0

    def torch(self) -> str:
        """The name that torch has in the file."""
        return self._module("torch")

    def _module(self, module: str) -> str:
        for name, meaning in self.visible.items():
            if meaning == module:
                return name
        if self.place.library != "torch":
            raise UnwritableError(f"{self.place.library} has no name there")
        parent, _, last = module.rpartition(".")
        if parent:
            return f"{self._module(parent)}.{last}"
        if module in self.place.assigned_names or module in self.visible:
            raise UnwritableError(f"the name {module} is something else there")
        self.imports.add(module)
        return module

    # -- terms of the source

    def term(self, term: Term) -> Written:
        """The text of a term of the source: its own where it has one."""
        if isinstance(term.node, ast.expr) and not _writes(self.place, term.node):
            text = self.place.code(term.node)
            return Written(text, binding(text))
        match term.name:
            case "number":
                return self._number(term.value)
            case "constant":
                return Written(term.text)
            case "mul":
                return self._product(term)
            case "add":
                return self._sum(term)
            case "pow":
                base = self.term(term.operands[0])
                if term.text == MULTIPLIED and (factor := self._factor(term.operands[0], base)) is not None:
                    return Written(f"{factor} * {factor}", 4)
                base = base.within(7)
                return Written(f"{base} ** {self.term(term.operands[1]).within(6)}", 6)
            case "leaf" | "slice":
                raise UnwritableError("what it reads is written into there")
            case name:
                arguments = {p: self.term(c) for p, c in term.children}
                return self._call(name, list(arguments.values()), {})

    def _factor(self, term: Term, written: Written) -> str | None:
        """What a factor is read by that stands twice in a product; None where it can have no name above."""
        if is_simple(written.text):
            return written.within(5)
        if self.naming != "above":
            return None
        if written.text not in self._factors:
            self.moved.append(term)
            self._factors[written.text] = self._bind_name(f"factor_{len(self._factors)}", written).text
        return self._factors[written.text]

    def _number(self, value: float) -> Written:
        if not math.isfinite(value):
            return Written(f'float("{value}")')
        known = _CONSTANTS.get(abs(value))
        if known is not None and "math" in self.visible.values():
            name = next(name for name, meaning in self.visible.items() if meaning == "math")
            text = known.replace("math", name)
            return Written(f"-{text}", 5) if value < 0 else Written(text, binding(text))
        text = repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
        return Written(text, 5 if value < 0 else ATOM - 1)

    def _product(self, term: Term) -> Written:
        above = [f for f in term.operands if not is_divisor(f) and not (f.name == "number" and f.value == -1)]
        below = [f for f in term.operands if is_divisor(f)]
        sign = "-" if any(f.name == "number" and f.value == -1 for f in term.operands) else ""
        text = " * ".join(self.term(f).within(5 if i else 4) for i, f in enumerate(above)) or "1"
        for factor in below:
            divisor = factor.origin or factor.operands[0]
            text += f" / {self.term(divisor).within(5)}"
        if sign and len(above) == 1 and not below and above[0].name == "add":
            items = above[0].operands
            if 2 * sum(map(_is_negative, items)) >= len(items):
                return self._sum(sum_of([negate(item) for item in items]))
        if len(above) == 1 and not below:
            return Written(sign + self.term(above[0]).within(5), 5 if sign else self.term(above[0]).binds)
        return Written(sign + text, 4)

    def _sum(self, term: Term) -> Written:
        text = ""
        for item in sorted(term.operands, key=_is_negative):
            own = self.term(item).within(3)
            if not text:
                text = own
            elif own.startswith("-"):
                text += f" - {own[1:].lstrip()}"
            else:
                text += f" + {self.term(item).within(4)}"
        return Written(text, 3)

    # -- the replacement

    def replacement(self, node: ast.expr, match: Match, counts: Mapping[str, int]) -> Written:
        """The text of a replacement, or of a part of one; ``counts`` says how often the whole reads each variable."""
        value = fold_constant(node)
        if value is not None:
            return self._constant(node, value)
        match node:
            case ast.Name(id=name):
                return self._variable(name, match, counts)
            case ast.Constant(value=value):
                return Written(repr(value), ATOM - isinstance(value, int))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Written("-" + self.replacement(operand, match, counts).within(5), 5)
            case ast.BinOp(left=left, op=symbol, right=right):
                text, binds = _SYMBOLS[type(symbol)]
                first = self.replacement(left, match, counts)
                second = self.replacement(right, match, counts)
                if text == "*" and first.text == "1":
                    return second
                left_side, right_side = first.within(binds + (text == "**")), second.within(binds + (text != "**"))
                return Written(f"{left_side} {text} {right_side}", binds)
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="abs"), args=[value]),
                ops=[ast.Gt()],
                comparators=[ast.Attribute(value=ast.Call(func=ast.Name(id="finfo"), args=[limited]), attr="max")],
            ) if ast.dump(value) == ast.dump(limited):
                # so it is written of integers too, which have no infinity
                return self._operator("isinf", ast.Call(ast.Name("isinf"), [value], []), match, counts)
            case ast.Compare(left=left, ops=[symbol], comparators=[right]):
                if _number_in(left, match) is not None and _number_in(right, match) is not None:
                    raise UnwritableError(f"{ast.unparse(left)} is a number there")
                first = self.replacement(left, match, counts).within(3)
                return Written(
                    f"{first} {_COMPARED[type(symbol)]} {self.replacement(right, match, counts).within(3)}", 1
                )
            case ast.IfExp(test=condition, body=chosen, orelse=other):
                parts = (self.replacement(part, match, counts).within(1) for part in (chosen, condition, other))
                return Written("{} if {} else {}".format(*parts), 0)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="finfo"), args=[value]), attr=attribute):
                if _number_in(value, match) is not None or self._are_numbers(value, match):
                    raise UnwritableError(f"{ast.unparse(value)} is a number there")
                own = self.replacement(value, match, counts).within(ATOM)
                return Written(f"{self.torch()}.finfo({own}.dtype).{attribute}")
            case ast.Attribute(value=value, attr=attribute):
                return Written(f"{self.replacement(value, match, counts).within(ATOM)}.{attribute}")
            case ast.Subscript(value=value):
                return Written(f"{self.replacement(value, match, counts).within(ATOM)}[{subscript_source(node)}]")
            case ast.Call(func=ast.Name(id="around"), args=[ast.expr() as value, ast.Name(id=whole)]):
                held = match.variables.get(whole)
                operand = moved_operand(self.place, held.node) if isinstance(held, Term) else None
                if not isinstance(held, Term) or operand is None:
                    raise UnwritableError(f"nothing there says what {whole} is")
                return Written(self._with_operand(held.node, operand, self.replacement(value, match, counts)))
            case ast.Call(func=ast.Name(id="scalar_log"), args=[ast.expr() as value]):
                return Written(f"{self._module('math')}.log({self.replacement(value, match, counts).within(1)})")
            case ast.Call(func=ast.Name(id="freedom"), args=[ast.expr() as value, ast.Name(id=rows)]):
                return self._freedom(self.replacement(value, match, counts), match.variables.get(rows))
            case ast.Call(func=ast.Name(id="count"), args=[ast.expr() as value, *rows]):
                over = next((match.variables.get(row.id) for row in rows if isinstance(row, ast.Name)), None)
                return Written(f"max({self._count(self.replacement(value, match, counts), over)}, 1)")
            case ast.Call(func=ast.Name(id=name)):
                return self._operator(name, node, match, counts)
            case ast.List(elts=parts):
                return Written("[" + ", ".join(self.replacement(p, match, counts).within(1) for p in parts) + "]")
            case ast.Tuple(elts=parts):
                return Written("(" + ", ".join(self.replacement(p, match, counts).within(1) for p in parts) + ",)")
            case _:
                raise UnwritableError(f"{ast.unparse(node)} is no expression that can be written")

    def _freedom(self, operand: Written, rows: Term | Missing | None) -> Written:
        """The correction 1, or 0 where a row has 1 element."""
        return Written(f"min({self._count(operand, rows)} - 1, 1)")

    def _count(self, operand: Written, rows: Term | Missing | None) -> str:
        """How many elements a row has; without one, how many there are."""
        own = operand.within(ATOM)
        if not isinstance(rows, Term):
            return f"{own}.numel()" if self.place.library == "torch" else f"{own}.size"
        if isinstance(rows.node, (ast.Tuple, ast.List)):
            return " * ".join(f"{own}.shape[{self.place.code(each)}]" for each in rows.node.elts) or "1"
        return f"{own}.shape[{self.term(rows).text}]"

    def _constant(self, node: ast.expr, value: float) -> Written:
        if isinstance(node, ast.Call):
            math_name = next((n for n, meaning in self.visible.items() if meaning == "math"), None)
            if math_name is not None:
                return Written(f"{math_name}.{ast.unparse(node)}")
            return self._number(value)
        if isinstance(node, ast.Name) or not math.isfinite(value):
            return self._number(value)
        text = ast.unparse(node)
        return Written(text, binding(text))

    def _variable(self, name: str, match: Match, counts: Mapping[str, int]) -> Written:
        if name in self._bound:
            return Written(self._bound[name])
        let = self.lets.get(name)
        if let is not None:
            self._depth += 1
            written = self.replacement(let, match, counts)
            self._depth -= 1
            return self._bind_name(name, written)
        value = match.variables.get(name)
        if value is None:
            raise UnwritableError(f"nothing there says what {name} is")
        if isinstance(value, Missing):
            raise UnwritableError(f"{value.operator} is called there without its {name}")
        own = self.names.get(name)
        if own is not None:
            return Written(own)
        written = self.term(value)
        if counts[name] > 1 and not is_simple(written.text) and self.naming != "nowhere":
            self.moved.append(value)
            return self._bind_name(name, written)
        if self._depth:
            self.moved.append(value)
        return written

    def _bind_name(self, name: str, written: Written) -> Written:
        """What is read again, by the name that it is given here."""
        own = self._bound[name] = self.fresh(name)
        if self.naming == "within":
            return Written(f"({own} := {written.text})")
        self.above.append((own, written.text))
        return Written(own)

    def fresh(self, name: str) -> str:
        """A name that the file does not have."""
        base = self.called.get(name) or ("operand" if len(name) == 1 else name.removesuffix("_0"))
        taken = self.place.names | set(self._bound.values())
        candidates = [base, *(f"{base}_{i}" for i in range(2, 100))]
        return next(c for c in candidates if c not in taken)

    def _operator(self, name: str, node: ast.Call, match: Match, counts: Mapping[str, int]) -> Written:
        if name == "where" and self._are_numbers(node, match):
            return self.replacement(ast.IfExp(*node.args), match, counts)
        if name != "where" and node.args and _number_in(node.args[0], match) is not None:
            raise UnwritableError(f"{ast.unparse(node.args[0])} is a number there")
        if name in _OF_NUMBERS and len(node.args) == 1 and self._are_numbers(node.args[0], match):
            return Written(f"{self._module('math')}.{name}({self.replacement(node.args[0], match, counts).within(1)})")
        values: list[Written] = []
        keywords: dict[str, Written] = {}
        parameters = signatures.SIGNATURES.get(signatures.canonical(name)[0], ("input",))
        left_out = is_total = False
        total: str | None = None
        for i, argument in enumerate(node.args):
            given = match.variables.get(argument.id) if isinstance(argument, ast.Name) else None
            if isinstance(given, Missing) and i:
                left_out = True
                total = given.operator if parameters[i : i + 1] == ("dim",) else total
            elif left_out or parameters[i : i + 1] == ("keepdim",):
                keywords[parameters[i]] = self.replacement(argument, match, counts)
            else:
                values.append(self.replacement(argument, match, counts))
        for keyword in node.keywords:
            given = match.variables.get(keyword.value.id) if isinstance(keyword.value, ast.Name) else None
            if isinstance(given, Missing) and keyword.arg == "dim":
                is_total = True
            elif keyword.arg is not None and not isinstance(given, Missing):
                keywords[keyword.arg] = self.replacement(keyword.value, match, counts)
        if is_total:
            # over all elements there is none to keep
            keywords.pop("keepdim", None)
        if match.dtype is not None and name in _SOFTMAX:
            keywords["dtype"] = self.term(match.dtype)
        if name in _OVER_ALL and total in TORCH.having("row-reduction"):
            return self._over_all(name, values[0])
        if name == "logaddexp" and self.place.library == "torch":
            # it takes no number of Python's
            make = f"{values[0].text}.new_tensor" if is_simple(values[0].text) else f"{self.torch()}.tensor"
            for i, argument in enumerate(node.args):
                if fold_constant(argument) is not None or self._are_numbers(argument, match):
                    values[i] = Written(f"{make}({values[i].within(1)})")
        return self._call(name, values, keywords)

    def chosen_by_numbers(self, node: ast.expr, match: Match) -> ast.expr:
        """A replacement; where numbers of Python choose 0 in place of a quotient, that is 0 times what is divided."""
        match node:
            case ast.Call(
                func=ast.Name(id="where"),
                args=[condition, ast.Constant(value=0), ast.BinOp(left=left, op=ast.Div(), right=right)],
            ) if self._are_numbers(condition, match) and not self._are_numbers(left, match):
                inner = right.args if isinstance(right, ast.Call) else []
                if len(inner) == 3 and ast.dump(inner[0]) == ast.dump(condition):
                    right = inner[2]
                nothing = ast.BinOp(left, ast.Mult(), ast.Constant(0.0))
                return ast.IfExp(condition, nothing, ast.BinOp(left, ast.Div(), right))
            case _:
                return node

    def _are_numbers(self, node: ast.expr, match: Match) -> bool:
        """Whether all variables that a part of a replacement reads are numbers of Python's there."""
        called = {n.func for n in ast.walk(node) if isinstance(n, ast.Call)}
        values = [match.variables.get(n.id) for n in ast.walk(node) if isinstance(n, ast.Name) and n not in called]
        terms = [value.node for value in values if isinstance(value, Term) and isinstance(value.node, ast.expr)]
        return (
            bool(terms)
            and len(terms) == len(values)
            and all(self.place.code(term) in self.numbers or is_declared_number(self.place, term) for term in terms)
        )

    def _over_all(self, name: str, operand: Written) -> Written:
        """An operator that asks for a dimension, over all elements."""
        text = f"{operand.within(ATOM)}.flatten()"
        over = f"{self.torch()}.{name}({text}, 0)"
        if name == "logsumexp":
            return Written(over)
        if not is_simple(operand.text):
            raise UnwritableError(f"{name} is needed over all elements of {operand.text}")
        return Written(f"{over}.view_as({operand.text})")

    def _call(self, name: str, values: list[Written], keywords: dict[str, Written]) -> Written:
        if self.place.library == "numpy" and not hasattr(np, name):
            raise UnwritableError(f"NumPy has no {name}")
        own = _OF_NUMPY if self.place.library == "numpy" else {}
        given = [v.within(1) for v in values] + [f"{own.get(k, k)}={v.within(1)}" for k, v in keywords.items()]
        rest = ", ".join(given[1:])
        home = signatures.HOMES.get(name)
        if home == "Tensor" or (self.methods and name in signatures.METHODS and values[0].binds == ATOM):
            return Written(f"{values[0].within(ATOM)}.{name}({rest})")
        has_functional = "torch.nn.functional" in self.visible.values()
        if home == "nn.functional" or (name in _SOFTMAX and (has_functional or len(given) == 1)):
            module = self._module("torch.nn.functional")
        else:
            module = self.torch() if home is None else f"{self.torch()}.{home}"
        return Written(f"{module}.{name}({', '.join(given)})")

    def _with_operand(self, node: ast.expr, operand: ast.expr, written: Written) -> str:
        """The text of an expression with another operand."""
        start, inner = self.place.span(node)[0], self.place.span(operand)
        return apply_edits(self.place.code(node), [(inner[0] - start, inner[1] - start, written.within(ATOM))])

    def with_surroundings(self, written: Written, match: Match) -> Written:
        """What the source has around the pattern's own operators: casts and views, factors, terms."""
        for call, operand in match.wrappers:
            written = Written(self._with_operand(call, operand, written))
        for factor in match.factors:
            if factor.name == "number" and factor.value == -1:
                written = Written("-" + written.within(5), 5)
            elif is_divisor(factor):
                divisor = factor.origin or factor.operands[0]
                written = Written(f"{written.within(4)} / {self.term(divisor).within(5)}", 4)
            else:
                written = Written(f"{self.term(factor).within(4)} * {written.within(5)}", 4)
        for item in match.terms:
            other = self.term(item).within(3)
            text = f"{other} - {written.text[1:]}" if written.text.startswith("-") and written.binds >= 4 else None
            written = Written(text or f"{other} + {written.within(4)}", 3)
        return written


def _number_in(node: ast.expr, match: Match) -> float | None:
    """The number that a part of a replacement is, where it is one or stands for one."""
    value = match.variables.get(node.id) if isinstance(node, ast.Name) else None
    if isinstance(value, Term):
        return value.value if value.name == "number" else None
    return fold_constant(node)


def _is_negative(term: Term) -> bool:
    return term.name == "mul" and any(f.name == "number" and f.value < 0 for f in term.operands)


def _writes(place: Place, node: ast.expr) -> bool:
    return any(isinstance(n, ast.Call) and operator_of(place, n)[1] for n in ast.walk(node))
