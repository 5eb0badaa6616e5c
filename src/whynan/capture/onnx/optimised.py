"""ONNX Runtime as it runs a model in production: the graph that it has optimised, written down and looked at.

A session with the user's options writes the graph that it executes. That graph, every value of which is an output, is
run without any further optimisation: fusions stay, and the outputs have the very bits of the session's own.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.onnx.arrays import copy_value, engine_message, make_ort_value, read_ort_value, run_session, type_of
from whynan.capture.onnx.control_flow import Run, Scope
from whynan.capture.onnx.execution import NCHWC, Outcome, RunError
from whynan.capture.onnx.graph.executed import Executable, drop_duplicate_constants, without_weights
from whynan.capture.onnx.graph.written import computed_constants, read_written
from whynan.capture.onnx.runner import Walk, remarks
from whynan.capture.onnx.segments import (
    RECYCLED,
    REPEATED,
    Memory,
    available_bytes,
    lower_mmap_threshold,
    plan_of,
    resident,
    trim_heap,
)
from whynan.capture.onnx.sessions import CPU, EngineSettings, Profile, open_user_session, read_profile
from whynan.capture.onnx.single_node import LoneNodes
from whynan.capture.onnx.statistics import Digest, digest
from whynan.models.onnx.model import nodes
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

    from whynan.capture.onnx.execution import Observer, Value
    from whynan.capture.onnx.runner import Plan

_EXECUTED: Final = "executed.onnx"
_PROFILE: Final = "profile"
_UNPACKED: Final = "session.disable_prepacking"
_UNWRITABLE: Final = "compiled nodes"
"""What ONNX Runtime says of a graph that cannot be written, since a provider has compiled parts of it."""
_WRITING: Final = 11
"""Bytes that a session comes to for each number of its weights, as it packs them and writes them down."""


class OnnxRuntime:
    """A model opened on ONNX Runtime; raises ``RunError`` where it refuses the model."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = self._looked = settings
        lower_mmap_threshold(settings.memory)
        # before anything else takes memory: what is mapped to be read counts as well
        self._written = read_written(settings.path)
        self._folder = Path(tempfile.mkdtemp(prefix="whynan-"))
        self._bare: Any = None
        self._profile: Profile | None = None
        self._walk: Walk | None = None
        self._computed: tuple[str, ...] = ()
        self._plan: Plan = ()
        self._said: tuple[Note, ...] = ()
        try:
            self._bare, model = self._opened()
            # of the session only what runs in it is kept: not the providers it was asked for
            self.providers = tuple(str(name) for name in self._bare.get_providers())
            self._required = [str(value.name) for value in self._bare.get_inputs()]
            _prune(model, {*self._required, *(str(v.name) for v in self._bare.get_overridable_initializers())})
        except BaseException:
            self.close()
            raise
        self._graph = Executable(drop_duplicate_constants(model), self._folder)
        self.nodes_as_written = len(self._written.nodes)

    @property
    def executed_model(self) -> onnx.ModelProto:
        """The graph that runs, with its large weights in files."""
        return self._graph.model

    def _opened(self) -> tuple[Any, onnx.ModelProto]:
        """A session with the user's options, and the graph that is looked at: the one that it runs."""
        path, profile = self._folder / _EXECUTED, self._folder / _PROFILE
        try:
            return self._writing(path, profile), without_weights(path)
        except RunError as error:
            if _UNWRITABLE not in error.what:
                raise
        return open_user_session(self.settings, None, None), self._without_compiling(path)

    def _without_compiling(self, path: Path) -> onnx.ModelProto:
        """The graph that the other providers run, where one compiles parts of it; it is looked at in their place."""
        self._profile = Profile()
        providers = self.settings.providers
        while True:
            providers = providers[1:] or (CPU,)
            self._looked = dataclasses.replace(self.settings, providers=providers)
            try:
                open_user_session(self._looked, path, None)
                break
            except RunError as error:
                if _UNWRITABLE not in error.what or providers == (CPU,):
                    raise
        asked, others = tuple(self.settings.provider_names), tuple(self._looked.provider_names)
        self._said = (Note.create("provider_compiles", asked=asked, others=others),)
        return without_weights(path)

    def _writing(self, path: Path, profile: Path) -> Any:
        """The session, once the graph that it executes is written."""
        memory, needed = self.settings.memory, resident() + _WRITING * self._written.weights
        if memory is None or needed <= memory:
            return open_user_session(self.settings, path, profile)
        # weights that are not packed for their kernels leave room for those that are written
        config = {**self.settings.session_config, _UNPACKED: "1"}
        open_user_session(dataclasses.replace(self.settings, session_config=config), path, None)
        return open_user_session(self.settings, None, profile)

    def close(self) -> None:
        """Let go of its sessions, and of the files that it wrote."""
        self._bare = self._walk = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, feeds: Mapping[str, Value], observer: Observer, *, compare: bool = True) -> Outcome:
        """Run it and tell the observer of all that it comes to; raises ``RunError`` where the engine refuses."""
        scope = self._fed(feeds)
        given = {name: scope.engine_value(name) for name in feeds if scope.has(name)}
        first = self._profile is None
        expected = self._expected(given) if compare or first else None
        profile = self._profile or Profile()
        sizes = {index: kernel.bytes for index, kernel in profile.kernels.items()}
        if self.settings.memory is not None:
            # before anything is planned, so that what the bare session held is free
            self._bare = None
            trim_heap()
        if self._walk is None:
            recycled = REPEATED if self.settings.repeated else RECYCLED
            self._plan = plan_of(self._graph, sizes, available_bytes(self.settings.memory), recycled)
            self._walk = self._walked(profile)
            self._computed = computed_constants(self._graph, self._written, self.settings.path)
        plan, walk = self._plan, self._walk
        shown = walk.shown(self._graph)
        observer.on_begin(shown, LoneNodes(walk))
        for name, value in feeds.items():
            observer.on_input(name, value, "input")
        walk.begin()
        walk.run(Run(scope, observer, shown, set()), plan)
        if isinstance(expected, RunError):
            # whatever is made of it here, in production it does not run
            raise RunError(expected.what, walk.nodes)
        outputs = {name: copy_value(scope.observed_value(name)) for name in self._graph.outputs}
        bit_equal, why = self._compared(expected if compare else None, outputs, given)
        if self._looked is not self.settings:
            outputs = bare_outputs(self.settings, feeds)
        for name in self._graph.outputs:
            observer.on_output(name, outputs[name])
        walk.notes |= dict.fromkeys(
            Note.create("unreadable", value_name=name, why=why) for name, why in scope.unreadable.items()
        )
        return Outcome(
            outputs=outputs,
            bit_equal=bit_equal,
            why=why,
            nodes=len(self._graph.nodes),
            nodes_as_written=self.nodes_as_written,
            segments=len(plan),
            placement=profile.placement,
            notes=(*self._said, *walk.notes, *remarks(self.settings, self.providers, profile, walk)),
            executed=self.executed_model,
            computed=self._computed,
            blocked=any(held.node.domain == NCHWC for held in nodes(self.executed_model)),
        )

    def _fed(self, feeds: Mapping[str, Value]) -> Scope:
        scope = Scope(self._graph)
        for name, value in feeds.items():
            kind = self._graph.inputs.get(name)
            if kind is None:
                raise RunError(f"the executed graph has no input {name}", 0)
            try:
                scope.hold(name, make_ort_value(value, kind), kind)
            except Exception as error:
                raise RunError(f"{name}: {engine_message(error)}", 0) from None
            scope.show(name, value)
        missing = [name for name in self._required if name not in feeds]
        if missing:
            raise RunError(f"nothing is given for the input {missing[0]}", 0)
        return scope

    def _expected(self, given: Mapping[str, Any]) -> dict[str, Digest] | RunError:
        """What the outputs of a bare session are, or why it ran to no end."""
        session = self._bare
        if session is None:
            session = self._bare = open_user_session(self.settings, None, None)
        try:
            found = _run(session, self._graph.outputs, given)
        except RunError as error:
            return error
        finally:
            if self._profile is None:
                path = Path(str(session.end_profiling()))
                self._profile = read_profile(path, self._graph)
                path.unlink(missing_ok=True)
        return found

    def _walked(self, profile: Profile) -> Walk:
        return Walk(
            self._looked,
            self._folder,
            profile=profile,
            memory=Memory(self._graph, profile.kernels, self._plan),
            lean=len(self._plan) > 1 and self.settings.memory is not None,
        )

    def _compared(
        self, expected: dict[str, Digest] | None, outputs: Mapping[str, Value], given: Mapping[str, Any]
    ) -> tuple[bool | None, Note]:
        if expected is None:
            return None, Note.create("not_compared")
        different = _different(expected, outputs)
        if not different:
            return True, Note.create("bits_equal", engine="session", outputs=len(expected))
        again = self._expected(given)
        if isinstance(again, dict) and again != expected:
            return None, Note.create("runs_differ", engine="session")
        return False, Note.create("bits_differ", engine="session", outputs=tuple(different))


def bare_outputs(settings: EngineSettings, feeds: Mapping[str, Value]) -> dict[str, Value]:
    """The outputs of a session with the user's options; raises ``RunError`` where it refuses."""
    session = open_user_session(settings, None, None)
    kinds = {
        str(i.name): type_of(str(i.type)) for i in (*session.get_inputs(), *session.get_overridable_initializers())
    }
    try:
        given = {name: make_ort_value(value, kinds[name]) for name, value in feeds.items() if name in kinds}
        names = [str(output.name) for output in session.get_outputs()]
        found = run_session(session, names, given)
    except Exception as error:
        raise RunError(engine_message(error), 0) from None
    return {name: copy_value(_readable(value)) for name, value in zip(names, found, strict=True)}


def _prune(model: onnx.ModelProto, inputs: set[str]) -> None:
    """Take away the inputs that were initialisers and that the optimised graph has no use for."""
    kept = [value for value in model.graph.input if value.name in inputs]
    del model.graph.input[:]
    model.graph.input.extend(kept)


def _readable(value: Any) -> Value:
    try:
        return read_ort_value(value)
    except RuntimeError:
        return None


def _run(session: Any, names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Digest]:
    """The outputs of a session in few bytes each, so that they need not be kept."""
    asked = list(dict.fromkeys(names))
    try:
        found = run_session(session, asked, given)
    except Exception as error:
        raise RunError(engine_message(error), 0) from None
    return {name: digest(_readable(value)) for name, value in zip(asked, found, strict=True)}


def _different(expected: Mapping[str, Digest], outputs: Mapping[str, Value]) -> list[str]:
    return [name for name, there in expected.items() if digest(outputs[name]) != there]
