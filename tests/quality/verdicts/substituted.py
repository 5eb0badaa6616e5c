"""Wrong mends in the place of right ones: what the makers of candidates give is edited before it is proved."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from whynan.fixes import python as made_by
from whynan.fixes.candidates import Candidate
from whynan.fixes.diffs import apply_diff, read_diffs
from whynan.fixes.python import compare_versions
from whynan.records import APPLICABLE
from whynan.source.text import apply_edits

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from whynan.records import Fix, Report

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
    declined: list[str] = field(default_factory=list[str])

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
        for name, function in names.items():
            setattr(made_by, name, function)
        try:
            yield
        finally:
            for name, function in zip(names, real, strict=True):
                setattr(made_by, name, function)

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
        return held(report, self.wrong, texts)


def held(report: Report, wrong: Wrong, texts: Mapping[str, str]) -> list[Fix]:
    """The fixes of a report that are said to hold and have a wrong piece in them."""
    fixes = (fix for finding in (*report.findings, *report.damaging) for fix in finding.fixes)
    held = (fix for fix in fixes if fix.verdict.status in APPLICABLE and fix.patch)
    return [fix for fix in held if any(wrong.instead in text for text in edited(fix, texts).values())]


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
