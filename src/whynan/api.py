"""The public functions: they wire capture, analysis, rules and report, and hold no logic of their own."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any, cast

from whynan.capture.ranks import is_one_of_several
from whynan.config import Options
from whynan.errors import UsageError
from whynan.faults import report_internal_error
from whynan.records import Note
from whynan.report.notes import sentence
from whynan.run.comparison.settings import Request, read_settings
from whynan.run.explained_call import Call, TargetRerunner
from whynan.run.guarded_capture import CaptureOptions
from whynan.run.options import check_sync
from whynan.run.output.capsules import check_place, keeper_for, pack_finding, without_private
from whynan.run.pipeline import fold_report
from whynan.run.proof.proving import ProofOptions, prove_fixes, with_surroundings
from whynan.run.proof.reruns import NoRerun
from whynan.run.region import Region, allow_block, exception_text
from whynan.run.watch.metrics import sinks_of
from whynan.run.watch.training import Watch
from whynan.traces.format import FAILED
from whynan.training.fidelity import with_rerun, without_rerun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from whynan.capture.torch.kept_operations import OperationKeeper
    from whynan.records import Report, Site
    from whynan.run.suppressions import Allowance
    from whynan.run.watch.metrics import MetricSink
    from whynan.traces.writer import TraceWriter
    from whynan.verify.in_place.visits import Visits

RERUN_MEMORY = 4 << 30
CALLED_ONCE = "the target was called once: explain(..., rerun=True) proves fixes"


class Trace(Region):
    """A region in which every PyTorch operation of this thread is looked at; ``report`` is there after it.

    Args:
        memory: bytes of operands to hold for explanations, or text such as ``"512MB"``; 64 MiB unless given.
        ranges: record counters and finite range of every tensor.
        yields: end, instead of refusing, where the program begins a trace of its own.
        recording: writes the trace to disk as it is made.
        keeper: keeps the operations that bear bad numbers whole.
    """

    def __init__(
        self,
        *,
        memory: int | str | None = None,
        ranges: bool = False,
        yields: bool = False,
        command: str = "trace",
        copy_all: bool = False,
        quiet: bool = False,
        recording: TraceWriter | None = None,
        keeper: OperationKeeper | None = None,
    ) -> None:
        options = Options.load(memory=memory, ranges=ranges)
        watched = CaptureOptions(copy_all=copy_all, recording=recording, keeper=keeper)
        super().__init__(options, command=command, watched=watched, quiet=quiet, yields=yields)
        self.redacts = options.redact


def trace(*, memory: int | str | None = None, ranges: bool = False) -> Trace:
    """A region, fully traced: ``with whynan.trace() as t: ...``, then ``t.report``."""
    region = Trace(memory=memory, ranges=ranges)
    region.folds = True
    return region


def allow(pattern: str, *, reason: str) -> AbstractContextManager[Allowance]:
    """Findings of a rule, a family (``"WN5"``) or a rule's name are meant, in this block, for this reason."""
    return allow_block(pattern, reason)


def watch(
    *optimizers: Any,
    on_nonfinite: str | None = None,
    sync: str | None = None,
    quiet: bool | None = None,
    metrics: MetricSink | Iterable[MetricSink] | None = None,
) -> Watch:
    """A training loop, watched for nearly nothing: ``with whynan.watch(optimizer): ...``.

    Before an optimizer's step moves a weight, the loss and the gradients that it is made of are looked at. On the
    first bad one the program's own code since the step before is run again, fully traced, with everything put back
    after it, and the report says where the bad number was born. ``report`` is there then, and after the block.

    Args:
        optimizers: those to watch; models may stand among them and are passed over. All of the program's where none is
            given.
        on_nonfinite: at a bad step ``"stop"`` leaves the block, the weights as they are before it; ``"skip"`` lets the
            program go on without that step, ``"continue"`` with it; ``"raise"`` raises ``NonFiniteError`` there.
        sync: ``"step"`` reads the numbers of a step before it is made, which on an accelerator waits for it once;
            ``"deferred"`` reads them at the next step: a bad one is found one step late, when it has moved the weights,
            and is not run again. ``on_nonfinite`` is ``"stop"`` or ``"continue"`` then.
        quiet: print no report.
        metrics: one ``MetricSink`` or several, which are given the numbers of each step: the loss, the norm of the
            gradients, the loss scale.

    Raises:
        UsageError: for an option that there is not, options that cannot be had together, or a sink that is none.
    """
    options = Options.load(on_nonfinite=on_nonfinite, sync=sync, quiet=quiet)
    check_sync(options)
    watched = [o for o in optimizers if hasattr(o, "param_groups")]
    return Watch(options, watched, metrics=sinks_of(metrics))


def explain(
    target: Callable[..., Any] | str | os.PathLike[str],
    *inputs: Any,
    rerun: bool = False,
    ranges: bool = False,
    memory: int | str | None = None,
    capsule: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> Report:
    """Call a function or module once, fully traced, and explain every bad number that leaves it.

    The return value and every gradient that a ``backward()`` inside leaves are fatal sinks. Of an ONNX model every
    output is one.

    Args:
        target: a function or ``torch.nn.Module``; called once as ``target(*inputs, **kwargs)``. Or the path of an ONNX
            model, which is run as ``whynan onnx`` does.
        inputs: its arguments; for a model its inputs as arrays, or one dictionary of them by name.
        rerun: call it a second time, from the same state, for operand values that were gone. And a few times more, for
            at most 20 seconds of processor time (``WHYNAN_PROOF_SECONDS``), to prove the fixes of what was found.
        ranges: record counters and finite range of every tensor.
        memory: bytes of operands to hold.
        capsule: a new folder to pack the failing operation into, for ``whynan replay``.
        kwargs: its keyword arguments; for a model inputs by name.

    Raises:
        UsageError: not callable, or arguments that do not fit its signature; no model, or one that cannot be run.
        MetaTensorError: a module or argument on the meta device.
        Exception: whatever the target raises, unchanged, after the report was printed.
    """
    options = Options.load(memory=memory, ranges=ranges, capsule=None if capsule is None else os.fspath(capsule))
    check_place(options)
    if isinstance(target, str | os.PathLike):
        from whynan.run.onnx.inference import explain_run

        return explain_run(os.fspath(cast("str", target)), inputs, kwargs, options)
    if not callable(target):
        raise UsageError(
            f"explain() was given {type(target).__name__}, which cannot be called",
            "give the function or module itself and its inputs: explain(model, batch), or the path of an ONNX model",
        )
    _check_signature(target, inputs, kwargs)
    keeper = keeper_for(options)
    visits: dict[Site, Visits] = {}
    command = f"explain({_name(target)})"
    report = fold_report(_explain_call(Call(target, inputs, kwargs), command, options, keeper, visits, rerun=rerun))
    return without_private(pack_finding(report, keeper, options, visits), options, keeper)


def diff(
    a: Any,
    b: Any = None,
    inputs: Any = None,
    *,
    random: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    memory: int | str | None = None,
    b_opt_level: str | None = None,
    b_dtype: str | None = None,
    b_engine: str | None = None,
    b_provider: str | None = None,
    b_compile: bool = False,
    b_device: str | None = None,
) -> Report:
    """Run two forms of one model, and find the first operation where they part by more than rounding.

    Args:
        a: the path of an ONNX model or of an exported program, ``package.module:name``, a ``torch.nn.Module``, or a
            ``torch.export.ExportedProgram``.
        b: another one; without it, `a` under the settings ``b_...``, which are those of ``whynan diff``.
        inputs: arrays or tensors by input name, or in order.
        random: a seed to make up inputs from that are not given.
        rtol: outputs that are nearer to each other than this agree; ``atol`` the same, absolute.
        memory: bytes for the values of both runs; the rest goes to disk.

    Raises:
        UsageError: for what cannot be opened, run or compared.
    """
    from whynan.run.comparison.command import compared

    settings = read_settings(b_opt_level, b_dtype, b_engine, b_provider, compiled=b_compile, device=b_device)
    request = Request(a=a, b=b, settings=settings, inputs=inputs, seed=random, rtol=rtol, atol=atol)
    named = [_label(one) for one in (a, b) if one is not None]
    return compared(request, f"diff({', '.join(named)})", Options.load(memory=memory))


def _explain_call(
    call: Call,
    command: str,
    options: Options,
    keeper: OperationKeeper | None,
    visits: dict[Site, Visits],
    *,
    rerun: bool,
) -> Report:
    region = Trace(memory=options.memory, ranges=options.ranges, command=command, keeper=keeper)
    # what is private is in it until the capsule is packed
    region.redacts = region.redacts and keeper is None
    call.prepare(region.watching, twice=rerun)
    with region:
        call.run(region.watching)
    first = with_surroundings(region.report, region.trace)
    if not rerun:
        return prove_fixes(first, NoRerun(CALLED_ONCE))
    if (once := _only_once()) is not None:
        return prove_fixes(without_rerun(first, once), NoRerun(sentence(once)))
    second = Trace(memory=RERUN_MEMORY, command=region.report.run.command, copy_all=True, quiet=True)
    second.redacts = region.redacts
    if (taken := call.advanced(second.watching)) is not None:
        why = Note.create("takes_from", taken=taken)
        return prove_fixes(without_rerun(first, why), NoRerun(sentence(why)))
    if not call.rewind(second.watching):
        return without_rerun(region.report, FAILED)
    try:
        with second:
            call.run(second.watching)
    except Exception as error:
        return without_rerun(region.report, Note.create("second_run_raised", exception=exception_text(error)))
    finally:
        call.restore(second.watching)
    identical = call.identical(second.watching)
    # asked after that, which may have failed as well
    failed = second.watching.failed or second.trace.failed
    report = with_rerun(first, second.report, identical=identical, failed=failed)
    if report.run.replay.faithful is False:
        return prove_fixes(report, NoRerun(f"no faithful second call: {report.run.replay.why}"))
    again = TargetRerunner(call, lambda: Trace(memory=options.memory, command=report.run.command, quiet=True))
    keep = None if keeper is None else visits.__setitem__
    return prove_fixes(report, again, ProofOptions(options.proof_seconds, keep))


def _only_once() -> Note | None:
    """Why a target is not called again by this process alone; None if it may be. An error of ours is a reason."""
    try:
        return Note.create("together") if is_one_of_several() else None
    except Exception:
        report_internal_error()
        return FAILED


def _label(side: Any) -> str:
    return os.fspath(cast("str", side)) if isinstance(side, str | os.PathLike) else _name(side)


def _name(target: Any) -> str:
    if inspect.isbuiltin(target):
        return target.__name__
    return getattr(target, "__qualname__", None) or type(target).__name__


def _check_signature(target: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    shown = target
    if hasattr(target, "forward") and hasattr(target, "named_parameters"):
        shown = target.forward
    try:
        signature = inspect.signature(shown)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*inputs, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"the inputs do not fit {_name(target)}{signature}: {error}",
            "pass them to explain() just as you would to the target",
        ) from None
