"""What an optimizer's step consumes and does: gradients of any size, and updates that round away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.torch.operands import at, dtype_name, first_index
from whynan.capture.torch.planes import FLOATS, HALVES, PLAIN, readable
from whynan.capture.torch.rows import Held, Row, address
from whynan.floats import format_of
from whynan.records import Element

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.lanes import Lane
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.silent import Silents

STEEP: Final = 1e10
"""A gradient beyond it is out of all proportion."""
MOVING: Final = frozenset("add_ sub_ addcdiv_ addcmul_ mul_".split())
"""How optimizers change a parameter, by what each adds to it."""
OTHERS: Final = frozenset(
    "copy_ lerp_ div_ set_ fill_ zero_ _fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_".split()
)
"""What may change it besides, by how much is not known."""
_SAMPLE: Final = 256
_MOSTLY: Final = 0.5
"""The part of an optimizer's elements of low precision that stands still where it is told."""
_HOPS: Final = 8
_SCALING: Final = frozenset("mul_ div_".split())


class Update(NamedTuple):
    """The event that should have moved a parameter, and by how much at most."""

    row: Row
    operator: Operator
    largest: float


@dataclass(slots=True)
class Watched:
    """A parameter of low precision that nothing has moved in this step: what some of its elements were before it."""

    parameter: Tensor
    rate: float
    before: Tensor
    update: Update | None = None

    @property
    def stalled(self) -> bool:
        """Whether it should have moved and did not, by whatever way an optimizer may have written to it."""
        return self.update is not None and torch.equal(_some(self.parameter.detach()), self.before)


class Updates:
    """The steps of a trace's optimizers, as far as rules ask for them."""

    def __init__(self, silents: Silents, reads: frozenset[str]) -> None:
        self._silents = silents
        self._reads = reads
        self._still: dict[int, Watched] = {}
        """By address."""
        self._total = 0
        self.asked = MOVING | OTHERS if "parameters" in reads else frozenset[str]()

    # -- as a step begins ----------------------------------------------------------------------------------------

    def begin(self, optimizer: Any, lane: Lane) -> None:
        """A step is about to consume gradients."""
        self._still, self._total = {}, 0
        if optimizer is None or not self._reads:
            return
        parameters = [p for g in optimizer.param_groups for p in g["params"] if isinstance(p, torch.Tensor)]
        graded = [p for p in parameters if p.grad is not None and _plain(p.grad)]
        if not graded or _is_skipped(optimizer):
            return
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            largest = _largest([p.grad for p in graded if p.grad is not None])
            if "gradients" in self._reads:
                self._gradients(optimizer, graded, largest, lane)
            if "parameters" in self._reads:
                self._watch(optimizer, {id(p) for p, most in zip(graded, largest, strict=True) if most > 0})

    def _watch(self, optimizer: Any, graded: set[int]) -> None:
        """Keep an eye on the parameters of low precision whose gradients and learning rate are not 0."""
        for group in optimizer.param_groups:
            rate = group.get("lr", 1.0)
            rate = float(rate) if isinstance(rate, (int, float, torch.Tensor)) else 1.0
            # a schedule that has taken the rate down, or not yet up, means it to be small
            if not rate or rate < float(group.get("initial_lr", rate)):
                continue
            for p in group["params"]:
                if id(p) in graded and p.dtype in HALVES and _plain(p):
                    self._still[address(p)] = Watched(p, rate, _some(p.detach()).clone())
                    self._total += p.numel()

    def _gradients(self, optimizer: Any, graded: list[Tensor], largest: list[float], lane: Lane) -> None:
        scale = getattr(optimizer, "grad_scale", None)
        unscaled = 1.0 if scale is None else float(scale)
        most = max(largest)
        if most == most and most / unscaled > STEEP and most != float("inf"):
            self._steep(graded[largest.index(most)], most / unscaled, unscaled, lane)
        elif most == 0:
            self._zeroed(graded, lane)

    def _steep(self, leaf: Tensor, most: float, scale: float, lane: Lane) -> None:
        grad = leaf.grad
        assert grad is not None
        where = grad.abs() / scale > STEEP
        count = int(where.sum())
        element = self._element(leaf, grad, where, count)
        self._tell(None, element, "steep", count, grad.numel(), {"largest": most, "limit": STEEP}, lane)

    def _zeroed(self, graded: list[Tensor], lane: Lane) -> None:
        """Every gradient is 0: whether a factor made them so that an infinite norm had made 0."""
        tracer = self._silents.tracer
        for leaf in graded:
            grad = leaf.grad
            assert grad is not None
            row = tracer.rows.get(tracer.rows.writer_of(grad))
            kept = None if row is None else tracer.rows.of(row.ordinal)
            if row is None or kept is None or row.operator.base not in _SCALING:
                continue
            factor = kept.held[1] if len(kept.held) > 1 else None
            if isinstance(factor, list):
                factor = next((f for f in factor if isinstance(f, Held)), None)  # pyright: ignore[reportUnknownVariableType]
            if isinstance(factor, Held) and self._is_zero(factor) and (norm := self._infinite(factor)) is not None:
                total = sum(p.grad.numel() for p in graded if p.grad is not None)
                element = self._element(leaf, grad, torch.ones_like(grad, dtype=torch.bool), total)
                numbers = {"gradients": len(graded), "limit": format_of(norm).max}
                self._tell(row, element, "zeroed", total, total, numbers, lane)
                return

    def _is_zero(self, factor: Held) -> bool:
        value = self._silents.tracer.rows.value_of(factor)
        return value is not None and bool((value == 0).all())

    def _infinite(self, factor: Held) -> str | None:
        """The dtype of the infinity that a factor was computed from."""
        rows = self._silents.tracer.rows
        waiting, seen = [factor], 0
        while waiting and seen < _HOPS:
            held = waiting.pop(0)
            seen += 1
            value = rows.value_of(held)
            if value is not None and value.is_floating_point() and bool(torch.isinf(value).any()):
                return dtype_name(value.dtype)
            kept = rows.of(held.writer)
            waiting += [] if kept is None else [h for h in kept.held if isinstance(h, Held)]
        return None

    # -- while it runs -------------------------------------------------------------------------------------------

    def moved(self, row: Row, operator: Operator, args: Any, kwargs: Any, node: Any, lane: Lane) -> None:
        """An event of a step that may have changed a parameter."""
        del node, lane
        if not self._still:
            return
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            targets: list[Any] = list(args[0]) if isinstance(args[0], (list, tuple)) else [args[0]]
            for number, target in enumerate(targets):
                known = self._still.get(address(target)) if _plain(target) else None
                if known is None:
                    continue
                by = _added(operator, args, kwargs, number, target) if operator.base in MOVING else None
                largest = None if by is None else _rounds_away(target, by)
                if largest is None:
                    del self._still[address(target)]
                elif largest and (known.update is None or largest > known.update.largest):
                    known.update = Update(row, operator, largest)

    def end(self, lane: Lane) -> None:
        """The step has ended: what should have been moved, and was not."""
        watched, self._still = self._still, {}
        if not watched:
            return
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            still = [w for w in watched.values() if w.stalled]
            stalled = sum(w.parameter.numel() for w in still)
            if still and stalled >= _MOSTLY * self._total:
                largest = max(still, key=lambda w: w.parameter.numel())
                self._stalled(largest, len(still), stalled, lane)

    def _stalled(self, watched: Watched, parameters: int, stalled: int, lane: Lane) -> None:
        update, parameter = watched.update, watched.parameter.detach()
        assert update is not None
        sizes = parameter.abs().float()
        least = float(sizes[sizes > 0].min()) if bool((sizes > 0).any()) else 0.0
        element = self._element(watched.parameter, parameter, sizes == sizes.max(), stalled)
        numbers = {
            "rate": watched.rate,
            "update": update.largest,
            "ulp": format_of(dtype_name(parameter.dtype)).ulp(least),
            "least": least,
            "parameters": parameters,
        }
        self._tell(update.row, element, "stalled", stalled, self._total, numbers, lane)

    # -- what is told --------------------------------------------------------------------------------------------

    def _element(self, leaf: Tensor, holder: Tensor, where: Tensor, count: int) -> Element:
        place = first_index(where)
        value = None if place is None else at(holder, place)
        return Element(
            index=place,
            tensor=self._silents.tracer.names.leaf_name(leaf),
            shape=tuple(int(s) for s in leaf.shape),
            dtype=dtype_name(holder.dtype),
            value=value if isinstance(value, (int, float)) else None,
            count=count,
            total=max(count, holder.numel()),
        )

    def _tell(
        self, row: Row | None, element: Element, kind: Any, concerned: int, total: int, numbers: Any, lane: Lane
    ) -> None:
        if row is None:
            self._silents.add_at(lane.optimizer_site, "optimizer", element, kind, concerned, total, numbers)
            return
        self._silents.add(row, row.operator, (), element, kind, concerned, total, numbers, None, lane)


def _is_skipped(optimizer: Any) -> bool:
    """Whether a loss scaler has told an optimizer to leave out this step."""
    found_inf = getattr(optimizer, "found_inf", None)
    return isinstance(found_inf, torch.Tensor) and bool(found_inf.any())


def _plain(tensor: Any) -> bool:
    known = type(tensor) in PLAIN and tensor.dtype in FLOATS and tensor.element_size() > 1
    return known and readable(tensor) and tensor.numel() > 0


def _largest(grads: list[Tensor]) -> list[float]:
    """The greatest magnitude of each, in one transfer from each device."""
    found = [0.0] * len(grads)
    by_device: dict[Any, list[int]] = {}
    for number, grad in enumerate(grads):
        by_device.setdefault(grad.device, []).append(number)
    for numbers in by_device.values():
        ends = torch.stack([grads[n].detach().abs().max().float() for n in numbers]).tolist()
        for number, end in zip(numbers, ends, strict=True):
            found[number] = end
    return found


def _added(operator: Operator, args: Any, kwargs: Any, number: int, target: Tensor) -> Tensor | None:
    """What an operation in place adds to one of its targets; None where that is not known."""

    def of(position: int) -> Any:
        value = args[position] if position < len(args) else None
        return value[number] if isinstance(value, (list, tuple)) else value

    one, other = _wide(of(1)), _wide(of(2))
    match operator.base:
        case "add_" | "sub_":
            sign = -1.0 if operator.base == "sub_" else 1.0
            return None if one is None else one * (sign * float(kwargs.get("alpha", 1)))
        case "addcdiv_" | "addcmul_":
            if one is None or other is None:
                return None
            factor = kwargs.get("value", of(3))
            both = one / other if operator.base == "addcdiv_" else one * other
            return both * (1.0 if factor is None else float(factor))
        case _:
            return None if one is None else target.detach().float() * (one - 1)


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().float()
    return float(value) if isinstance(value, (int, float)) else None


def _rounds_away(target: Tensor, by: Any) -> float | None:
    """The greatest part of an update that changes no element at all; None where it changes one, or is not finite."""
    held = target.detach()
    change = by.expand(held.shape) if isinstance(by, torch.Tensor) else torch.full_like(held, by, dtype=torch.float32)
    for part, move in ((_some(held), _some(change)), (held, change)):
        if not bool(((part.float() + move).to(held.dtype) == part).all()):
            return None
    return float(change.abs().max())


def _some(tensor: Tensor) -> Tensor:
    """A few elements from all over a tensor."""
    flat = tensor.reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLE)]
