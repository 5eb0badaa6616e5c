"""Wrong mends in the place of right ones: what the makers of candidates give is edited before it is proved."""

from __future__ import annotations

import contextlib
import re
import sys
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.fixes import python as made_by
from whynan.fixes.candidates import Candidate
from whynan.fixes.diffs import apply_diff, read_diffs
from whynan.fixes.python import compare_versions
from whynan.records import APPLICABLE
from whynan.source.text import apply_edits

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from whynan.records import Fix, Report

MAIN: Final = "program"
"""The name of the file that has a program's target."""
APART: Final = 1e-5
"""Numbers are others than the exact ones if they are so far from these, relative to the greatest of their tensor."""
_SITE: Final = re.compile("(?s)(.*)«(.*)»(.*)")


@dataclass(frozen=True)
class Wrong:
    """A mend with something else in the place of one piece of its text; ``how`` names what."""

    how: str
    piece: str
    instead: str

    def of(self, text: str) -> str:
        """A text with the other piece in it, once."""
        return text.replace(self.piece, self.instead, 1)


def wrapped(site: str, how: str, form: str) -> Wrong:
    """What stands in a site between « and », in a form that has ``{}`` for it."""
    found = _SITE.fullmatch(site)
    assert found is not None, site
    before, piece, after = found.groups()
    return Wrong(f"{how} at {piece}", f"{before}{piece}{after}", f"{before}{form.replace('{}', piece)}{after}")


@dataclass
class Substitution:
    """What is given to a proof in place of right candidates, as long as it is ``in_place``."""

    wrong: Wrong
    titles: str
    """The title of the right mend: candidates that it is not made of are left out."""
    given: int = 0
    """So many candidates were given that have the wrong piece."""
    declined: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def in_place(self) -> Generator[None]:
        """Have every candidate that has the piece hold the wrong one."""
        real = made_by.candidates, made_by.moved_activations

        def candidates(text: str, finding: Any, *given: Any, **more: Any) -> list[Any]:
            found = real[0](text, finding, *given, **more)
            return [self._candidate(text, finding, one) for one in found if one.title in self.titles]

        def moved_activations(*given: Any) -> Iterator[Any]:
            return (self._moved(one) for one in real[1](*given))

        names = {"candidates": candidates, "moved_activations": moved_activations}
        vars(made_by).update(names)
        try:
            yield
        finally:
            vars(made_by).update(candidates=real[0], moved_activations=real[1])

    def _candidate(self, text: str, finding: Any, one: Any) -> Any:
        if not isinstance(one, Candidate):
            return one
        edited = self.wrong.of(one.edited)
        if edited == one.edited:
            # what was wrong before the candidate was made is so still
            self.given += self.wrong.instead in one.edited
            return one
        pair = compare_versions(text, edited, one.path, finding.site.line)
        if not isinstance(pair, tuple):
            self.declined.append(pair.why)
            return pair
        self.given += 1
        return replace(one, edited=edited, original=pair[0], repaired=pair[1])

    def _moved(self, one: Any) -> Any:
        others = tuple((path, before, self.wrong.of(after)) for path, before, after in one.others)
        self.given += others != one.others
        at = one.text.find(self.wrong.piece)
        if at < 0:
            return replace(one, others=others)
        self.given += 1
        edit = (at, at + len(self.wrong.piece), self.wrong.instead)
        return replace(one, text=apply_edits(one.text, [edit]), others=others, stages=(*one.stages, (edit,)))

    def passed(self, report: Report, texts: Mapping[str, str]) -> list[Fix]:
        """The fixes of a report that are said to hold and have the wrong piece in them."""
        fixes = (fix for finding in (*report.findings, *report.damaging) for fix in finding.fixes)
        held = (fix for fix in fixes if fix.verdict.status in APPLICABLE and fix.patch)
        return [fix for fix in held if any(self.wrong.instead in text for text in edited(fix, texts).values())]


def numbers(files: Mapping[str, str], values: Sequence[Any], learnt: int, dtype: torch.dtype) -> list[Tensor] | str:
    """What a program gives and all its gradients; or the exception that it raises."""
    kind = torch.get_default_dtype()
    modules = {name.removesuffix(".py"): ModuleType(name.removesuffix(".py")) for name in files}
    held = {name: sys.modules.get(name) for name in modules}
    try:
        torch.set_default_dtype(dtype)
        sys.modules.update(modules)
        for name in reversed(modules):
            exec(compile(files[f"{name}.py"], f"{name}.py", "exec"), vars(modules[name]))
        inputs = tensors(values, learnt, dtype)
        loss = modules[MAIN].target(*inputs)
        leaves = [*inputs[:learnt], *(p for one in _networks(modules) for p in one.parameters() if p.requires_grad)]
        return [t.detach() for t in (loss, *(torch.zeros(()) if x.grad is None else x.grad for x in leaves))]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        torch.set_default_dtype(kind)
        for name, module in held.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module


def tensors(values: Sequence[Any], learnt: int, dtype: torch.dtype = torch.float32) -> list[Any]:
    """The tensors of a program's values, of which the first few are differentiated by."""
    made = [torch.tensor(value) for value in values]
    made = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in made]
    return [tensor.requires_grad_() if number < learnt else tensor for number, tensor in enumerate(made)]


def _networks(modules: Mapping[str, ModuleType]) -> Iterator[torch.nn.Module]:
    return (one for module in modules.values() for one in vars(module).values() if isinstance(one, torch.nn.Module))


def differs(found: list[Tensor] | str, exact: list[Tensor] | str) -> bool:
    """Whether numbers are others than the exact ones, by far more than they are rounded."""
    if isinstance(found, str) or isinstance(exact, str):
        return True
    return any(_is_far(one.double(), other) for one, other in zip(found, exact, strict=True))


def _is_far(found: Tensor, exact: Tensor) -> bool:
    if found.shape != exact.shape:
        return True
    size = exact.abs().max().clamp(min=1e-30)
    return not bool(((found - exact).abs() <= APART * size).all())


def edited(fix: Fix, texts: Mapping[str, str]) -> dict[str, str]:
    """The files of a program with a fix; a path's last part is enough to know a file by."""
    after = dict(texts)
    for diff in read_diffs(fix.patch or ""):
        name = diff.names[1].rpartition("/")[2]
        after[name] = apply_diff(diff, after[name])
    return after


def best(fixes: Iterable[Fix]) -> Fix | None:
    """The first fix that holds and edits the source."""
    return next((fix for fix in fixes if fix.verdict.status in APPLICABLE and fix.patch), None)
