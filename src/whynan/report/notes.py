"""The catalogue of sentences: for each kind of note the words that a reader sees.

A sentence is a text with places for the values of its note, or a function of them. In a place stands how the value is
written: ``,`` with thousands apart, ``#`` a value in few characters, a noun for a count of it, and after ``?`` what is
said where it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from whynan.floats import format_value, short_text
from whynan.ops.table import TORCH
from whynan.report.wording import count_text, ranks_text

if TYPE_CHECKING:
    # one line of a report is said without what loads the records
    from whynan.records.notes import Note, Value

Values: TypeAlias = "Mapping[str, Any]"
Sentence: TypeAlias = "str | Callable[[Values], str]"

_SHOWN: Final = "#"
_LEFT_OUT: Final = "left out"
_REASON: Final = "a reason, left out"
_FORMULA: Final = "by another formula while"
_OPTIMISED: Final = "was computed by the optimizer before the run"
_AS_WRITTEN: Final = "--graph original looks at the graph as it is written"


class _Words(Formatter):
    """Writes the values of a note into its sentence."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return value if value is None else super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        form, _, absent = format_spec.partition("?")
        if value is None:
            return absent or _LEFT_OUT
        # here, so that a sentence without values is had without the records
        from whynan.records.notes import Note

        if isinstance(value, Note):
            return sentence(value)
        if isinstance(value, tuple):
            return ", ".join(self.format_field(one, form) for one in cast("tuple[Value, ...]", value))
        if form == _SHOWN:
            return short_text(value)
        return count_text(value, form) if form.isalpha() and isinstance(value, int) else format(value, form)


_WORDS: Final = _Words()


def sentence(note: Note) -> str:
    """What a note says."""
    said = SENTENCES[note.kind]
    return _WORDS.vformat(said, (), note.values) if isinstance(said, str) else said(note.values)


def sentences(notes: Iterable[Note]) -> tuple[str, ...]:
    """What some notes say."""
    return tuple(map(sentence, notes))


def reason(value: Value) -> str:
    """A reason as it is said: what a note of it says, or a text that was made elsewhere."""
    return _WORDS.format_field(value, f"?{_REASON}")


def _line(values: Values) -> str:
    return "" if values["file"] is None else f" at {values['file']}:{values['line']}"


def _because(values: Values) -> str:
    return "" if values["why"] is None else f": {reason(values['why'])}"


def _allowed(values: Values) -> str:
    why = "" if values["reason"] is None else f": {values['reason']}"
    return f"{values['code']} {values['name']}{_line(values)} is allowed{why}"


def _way(values: Values) -> str:
    """How what led to a step was run again."""
    if values["way"] is None:
        return "from the program's source"
    return f"{'eagerly ' if values['eager'] else ''}{values['way']}"


def _identical(values: Values) -> str:
    losses, gradients = values["loss_count"], values["gradients"]
    what = [count_text(losses, "loss", "losses")] if losses else []
    what += [count_text(gradients, "bad gradient")] if gradients else []
    what += ["the number that was read"] if values["read"] else []
    what += ["what was raised"] if values["raised"] else []
    where = "from the program's beginning" if values["whole"] else _way(values)
    return f"{' and '.join(what)} identical, run again {where}"


def _bad_step(values: Values) -> str:
    what = ["the loss"] if values["loss"] else []
    what += [count_text(values["gradients"], "gradient")] if values["gradients"] else []
    what += ["a number that was read"] if values["read"] else []
    what += ["what the program held as it raised"] if values["raised"] else []
    skips = values["skipped"]
    skipped = f", which a loss scaler has skipped {skips} times on end" if skips > 1 else ""
    return f"NaN or Inf in {' and '.join(what or ['the weights'])} at step {values['step']}{skipped}"


def _spoilt_before(values: Values) -> str:
    count, step = count_text(values["parameters"], "parameter"), values["step"]
    if step == 1:
        return f"{count} bad before step 1, the first that was watched"
    hint = f"whynan run --start-step {step - 1} looks at every operation from that step on"
    return f"{count} bad before step {step}: by the step before it, or earlier; {hint}"


def _spoilt_at_the_end(values: Values) -> str:
    how = (
        "at the end: spoilt by the last step, or in a CUDA graph"
        if values["graphs"]
        else ("after the last step: spoilt by that step")
    )
    return f"{count_text(values['parameters'], 'parameter')} bad {how}"


def _found_late(values: Values) -> str:
    made = "a loss scaler has skipped" if values["skipped"] else "weights were moved by"
    return f'found one step late: sync="deferred"; {made} step {values["step"]}'


def _not_reproduced(values: Values) -> str:
    index, result = values["index"], values["result"]
    where = "the result" if index is None else f"element {list(index)}"
    was = "NaN" if values["was_nan"] else "Inf" if values["was_inf"] else "bad"
    shown = "finite" if result is None else f"{result:g}"
    return f"not reproduced: {where} is {shown} here, and was {was} in the run"


def _names(values: Values) -> str:
    """Some names, and how many more."""
    rest = f" and {values['more']:,} more" if values["more"] else ""
    return _WORDS.format_field(values["names"], "") + rest


def _partial(values: Values) -> str:
    others = values["others"] or (None,) * len(values["counts"])
    there = (
        f"{count:,} of {values['nodes']:,} nodes on {_LEFT_OUT if name is None else name}"
        for name, count in zip(others, values["counts"], strict=False)
    )
    return _WORDS.vformat("{provider} did not run all of it: ", (), values) + ", ".join(there)


def _unmapped(values: Values) -> str:
    names = _WORDS.format_field(values["names"], "") + (" and others" if values["more"] else "")
    lost = f"{values['count']:,} of {values['total']:,} executed nodes"
    return f"{lost} could not be led back to nodes of the file: {names}"


def _least(values: Values) -> str:
    """The smallest number of a dtype, behind its name."""
    least = values["smallest"]
    return "" if least is None else f", whose smallest number is {format_value(least)}"


def _made_range(values: Values) -> str:
    low, high = values["low"], values["high"]
    least, greatest = short_text(low), short_text(high)
    span = "" if low is None else f" {least}" if low == high else f", from {least} to {greatest}"
    return f"{values['operator']} made it{span}"


def _index(values: Values) -> str:
    return str(list(values["index"])) if values["index"] else ""


def _several(value: Any) -> tuple[Value, ...]:
    return cast("tuple[Value, ...]", value) if isinstance(value, tuple) else (value,)


def _each(values: Values) -> list[str]:
    """The operands of a step as they are shown."""
    return [short_text(one) for one in _several(values["operands"])]


def _computed(values: Values) -> str:
    operator, seen = values["operator"], _each(values)
    words = TORCH.column("phrase").get(str(operator).lower()) if values["arithmetic"] and len(seen) == 2 else None
    of = f"{operator} of {', '.join(seen)}" if words is None else words.format(*seen)
    small = "" if values["dtype"] is None else f" in {values['dtype']}{_least(values)}"
    return f"{of} is {short_text(values['result'])}{small}"


def _scaled(values: Values) -> str:
    words = ("", " with scale ", " and zero point ")
    said = "".join(f"{word}{one}" for word, one in zip(words, _each(values), strict=False))
    return f"{values['operator']} of {said} is {short_text(values['result'])}"


def _product_term(values: Values) -> str:
    what, result = f"{short_text(values['first'])} times {short_text(values['second'])}", values["result"]
    if result == 0:
        return f"each term of the product is 0, such as {what}"
    if values["exact"]:
        return f"{what} is {short_text(result)}"
    return f"{what}, the greatest term of the product, makes it {short_text(result)}"


def _outside(values: Values) -> str:
    value = f" is {short_text(values['result'])}" if values["known"] else ""
    return f"{values['sort']} {values['tensor'] or 'from outside'}{_index(values)}{value}"


def _entered(values: Values) -> str:
    sort, name, written = values["sort"], values["tensor"], values["literal"]
    sort = sort or ("a constant" if written else "data")
    said = f"{sort} {name or ('that the program writes' if written else 'from outside')}"
    said += "" if values["dtype"] is None else f" (Inf there, or beyond {values['dtype']})"
    return said if values["since"] is None else f"{said} ({sentence(values['since'])})"


def _expression(values: Values) -> str:
    ways = _several(values["given"])
    if not ways:
        return f"{values['code']}: the array that came in"
    verb = "gives" if len(ways) == 1 else "give"
    return f"{values['code']}: {' and '.join(map(str, ways))} {verb} {values['bad']}"


def _reached(values: Values) -> str:
    name = f" {values['tensor']}" if values["tensor"] else ""
    return f"{_SINKS[values['sink']]}{name}: {values['n_bad']} of {values['total']} bad"


def _held(value: float | None) -> str:
    return "NaN or Inf" if value is None else format_value(value)


_DOES: Final = {"ends": "ends the program", "leaves": "leaves its loop", "skips": "skips the step"}
_TESTS: Final = {
    "loss": "the loss",
    "tested": "what it tests",
    "gradients": "what it tests of the gradients",
    "held": "what it holds",
    "given": "what a whole number there was computed of",
}
_SINKS: Final = {
    "loss": "the loss",
    "gradient": "the gradient of",
    "parameter": "the parameter",
    "buffer": "the buffer",
    "output": "the output",
    "observed": "read by Python",
}
_BARE: Final = {"session": "a bare session", "evaluator": "the bare evaluator"}

_NOT_PROVED: Final = {
    "crash": "the engine crashed",
    "end": "the process ended",
    "failure": "whynan met an error of its own",
}

SENTENCES: Final[dict[str, Sentence]] = {
    "written": "{sentence}",
    "left_out": (
        "names, values, source text and paths are left out; files, functions, modules and tensors are numbered instead"
    ),
    "notes_left_out": "notes that may hold names, left out: {count}",
    "allowed": _allowed,
    "whynan_failed": "whynan met an error of its own and stopped looking: what follows it was not seen",
    "no_torch": "the program never loaded torch, so there was nothing to look at",
    "forked": "this is a child of the process that was looked at: what it computed was not looked at",
    "stepped_aside": "the program traces itself: what it did from there on is in its own report",
    "terminated": "the program was told to terminate: what it would have done after that is not known",
    "one_of_several": "rank {rank} of {world}: one of several processes is not stopped by itself, nor run again",
    "ranks_missing": lambda v: f"{ranks_text(v['ranks'])} of {v['world']:,} left no report",
    "provisional": (
        "rank {rank} has left this report before there is one of all ranks: they go on, or were ended before that"
    ),
    "store_lost": "the other ranks could not be asked: this is the report of one rank",
    "skipped_with_others": lambda v: (
        f"rank {v['rank']:,} has left out {count_text(v['steps'], 'step')} that {'was' if v['steps'] == 1 else 'were'} "
        "bad on another rank"
    ),
    "ranks_parted": (
        "from step {step:,} on each rank has left out its own bad steps alone: the others did not come to that step"
    ),
    "no_others": "nothing of this process was looked at, and nothing is known of those beside it",
    "no_facts": "the trace holds no facts: its run was over before any were written",
    "rank_without_end": lambda v: (
        f"rank {v['rank']:,} left no end: its trace stops "
        + ("" if not v["step"] else f"at step {v['step']:,}, ")
        + f"after {v['events']:,} operations, and what it did then is not known"
    ),
    "unfinished": (
        "this trace is unfinished: its run was killed, still goes on, or could write no more, and what it did after "
        "{events:,} operations is not known"
    ),
    "trace_stopped": lambda v: (
        f"the trace in {v['folder'] or 'its folder'} stopped after {v['events']:,} events{_because(v)}"
    ),
    "trace_full": lambda v: (
        f"the trace in {v['folder'] or 'its folder'} holds the first {v['events']:,} events only"
        + ("" if v["folder"] is None else f": events may take {v['megabytes']:,} MiB")
    ),
    "ended_in_a_replay": ("the run ended in the replay of a bad step: whether that is what has happened is not known"),
    "other_values_formula": (
        f"PyTorch computes eigvalsh, svdvals, cond and the matrix norms {_FORMULA} they are watched; they can differ "
        "without"
    ),
    "other_gradient_formula": (
        f"{{node:?a gradient}}: PyTorch computes this gradient {_FORMULA} it is watched; it can differ without"
    ),
    "compiled_region": lambda v: (
        f"a compiled region{_line(v)} was looked at only where values enter and leave it; TORCH_COMPILE_DISABLE=1, or "
        "torch.compiler.set_stance('force_eager'), shows what happens inside"
    ),
    "fused_kernel": (
        "a kernel that TorchScript has fused ran: what it computes was not seen, and what it gives counts as from "
        "outside; PYTORCH_JIT=0 shows what happens inside"
    ),
    "thread_not_entered": lambda v: (
        ("a thread" if v["thread"] is None else f"thread {v['thread']!r}")
        + " was not entered: what it computed was not traced"
    ),
    "nested_tensors": "operations on nested tensors are not looked at: what is born in one is not known",
    "no_silent_on_device": "finite numbers that are wrong or lost were looked for on the CPU alone, not on the device",
    "large_sparse": "a sparse tensor of more than {elements:,} elements was looked at as a whole",
    "discarded_gradients": "{times:time} the program discarded gradients that were NaN or Inf",
    "looked_up_to": "looked at up to step {step}, as --steps says",
    "never_reached": "step {step} was never reached, so nothing was looked at",
    "only_modules": "only the forward of {module:?the chosen modules} was looked at, and every backward",
    "no_such_module": lambda v: (
        _WORDS.vformat("no module called {module:?as --only says} ran; those that ran: ", (), v)
        + (_WORDS.format_field(v["others"], "") or "none")
    ),
    "operands_let_go": (
        "operands of {events:,} earlier events were let go to keep within the memory budget: what came before may be "
        "missing, and a larger memory= keeps it"
    ),
    "ranges_left_out": "ranges of {tensors} more tensors were left out",
    "value_ranges_left_out": "the ranges of {values:,} more values are left out",
    "damage_not_followed": "damage of absorbed births was not followed any further: too many {of}",
    "watched": "{steps:step} watched: the loss and the gradients of each were finite",
    "graph_replays": "{replays:replay} of CUDA graphs: what ran inside was not looked at",
    "spoilt_at_the_end": _spoilt_at_the_end,
    "spoilt_before": _spoilt_before,
    "optimizer_state": "what the optimizer keeps of the first element that is bad: {state}",
    "more_bad_steps": lambda v: f"{count_text(v['steps'], 'more step')} bad after that, not looked into",
    "bad_step": _bad_step,
    "found_late": _found_late,
    "sync_advice": 'sync="step" finds such a step before it is made, and explains it there',
    "compiler_suspected": lambda v: (
        f"replayed {_way(v)}, the step is finite: the compiler is the suspect; TORCHDYNAMO_DISABLE=1 runs the program "
        'as it is written, and torch.compile(backend="aot_eager") without the kernels of inductor'
    ),
    "no_replay": lambda v: f"no replay {_way(v)}: {reason(v['why'])}",
    "gone_on": "no replay: the program has gone on from that step",
    "another_thread": "no replay: another thread is looked at",
    "began_bad": "NaN was held already where the replay begins: --mode trace tells where it was born first",
    "sender_unexplained": "it came from rank {rank}, whose own step has not shown where it was born:",
    "share_good": "replayed with what this rank computes, the step is finite: what is bad came from another rank",
    "replay_together": "no replay: one of several processes, which would have to run it again together",
    "another_optimizer": (
        "no replay: another optimizer has stepped on the gradients of the same backward, and its weights have moved; "
        "two that were seen to step so before are explained"
    ),
    "no_way": "no replay: what led to the step stands in no code that can be run again from its source",
    "start_step_advice": ("whynan run --start-step {step} looks at every operation from that step on, in another run"),
    "rerun_advice": "whynan run --rerun runs the program again, with all that it does, to explain that step",
    "mode_trace_advice": "whynan run --mode trace looks at every operation",
    "evaluation_not_run_again": (
        f"a module gave NaN or Inf in an evaluation, which could not be run again: {{why:?{_REASON}}}"
    ),
    "no_second_run": f"no second run: {{why:?{_REASON}}}",
    "second_run_not_used": f"a second run was not used: {{why:?{_REASON}}}",
    "meant_after_all": ("the program had been stopped before a second run could tell that what was born is allowed"),
    "no_proof_together": "not run again for a proof: it is one of several processes",
    "proof_ended": "the proof of fixes was ended after {seconds:g} seconds of processor time (--proof-seconds)",
    "proof_interrupted": "the proof of fixes was interrupted",
    "no_capsule": f"there is no capsule: {{why:?{_REASON}}}",
    "no_operation": f"the capsule holds no operation to replay: {{why:?{_REASON}}}",
    "capsule_has_values": "the capsule holds the values of the operation's operands, which --redact leaves in it",
    "other_device": "the run had it on {old}, and here it was run on {new}",
    "other_version": "{package} is {here} here, and was {there} in the run",
    "operands_cut": "the element that was bad is packed alone: of all its operands there was too much",
    "other_bits": "{count:,} of {total:,} elements of the results have other bits than in the run",
    "same_bits": "the result has the bits that it had in the run",
    "not_reproduced": _not_reproduced,
    "given": "what is bad in {outputs:?outputs} was given: {literals}",
    "failed_after": "the run failed after {nodes:,} nodes: what came after is not known",
    "cases_failed": ("{count:,} of the other cases ran to no end, the first of them number {first}: {why}"),
    "fixes_not_proved": lambda v: "fixes of the model could not be proved: " + _NOT_PROVED[v["cause"]],
    "numpy_makes": lambda v: f"NumPy made NaN or Inf in the same run{_line(v)}",
    "proving_ended": "proving fixes took {seconds:.0f} s and ended there: {untried:,} more were not tried",
    "too_many_nodes": (
        "too many nodes met bad numbers: of the last of them it is not known which elements carry them on"
    ),
    "unreadable": "{value_name}: {why}",
    "provider_compiles": (
        "a provider compiles parts of the model, and nothing in them can be looked at: the outputs are those of "
        "{asked}, and all other values those of {others}"
    ),
    "provider_missing": "{provider} was asked for and is not there: the model ran on {others}",
    "provider_partial": _partial,
    "float16_emulated": (
        "float16 is computed in float32 here: {values:,} values are kept in float32 between nodes; --engine reference "
        "computes in float16"
    ),
    "float16_overflow": (
        "{value_name} would overflow in float16: its greatest magnitude is {greatest:.6g}, the limit 65504"
    ),
    "float16_overflows": "{count:,} more values would overflow in float16",
    "body_not_entered": "the body of {node_name} ({op}) was not looked into",
    "body_differs": (
        "the body of {node_name} ({op}), run once more by itself, did not give the very bits again: what is said of "
        "its inside may differ from what ran"
    ),
    "one_at_a_time": "the nodes from {node_index} on could only be run one at a time: {why}",
    "nodes_unmapped": _unmapped,
    "memory_exceeded": lambda v: (
        f"--memory could not be kept: the process that ran the model came to {v['came_to'] / 1e6:,.0f} MB, and was to "
        f"stay within {v['limit'] / 1e6:,.6g} MB"
    ),
    "optimisation_elsewhere": (
        f"the graph as it is written gives bad numbers too, in other elements of {{outputs}}; {_AS_WRITTEN}"
    ),
    "optimisation_bears": f"bad numbers in the outputs come from optimisation; {_AS_WRITTEN}",
    "optimisation_cures": f"optimisation takes bad numbers away; {_AS_WRITTEN}",
    "computed_before": lambda v: f"what is bad in {_names(v)} {_OPTIMISED}: the graph is told of as it is written",
    "computed_before_otherwise": lambda v: (
        f"what is bad in {_names(v)} {_OPTIMISED}, and the graph as it is written gives other bad numbers; --graph "
        "original looks at that one"
    ),
    "without_blocks": (
        "what is bad is told of a run without ONNX Runtime's layout in blocks of channels (NchwcTransformer disabled)"
    ),
    "in_blocks": (
        "without ONNX Runtime's layout in blocks of channels other outputs are bad: elements are told where they lie "
        f"in the blocks; {_AS_WRITTEN}"
    ),
    "identical": _identical,
    "same_elements": "the same elements are bad of what the module gives again",
    "rerun_identical": "results, events and findings identical",
    "births_identical": "births and their values identical, run again from the program's beginning",
    "births_identical_eagerly": (
        "as many bad numbers in the same places, run again from the program's beginning without torch.compile"
    ),
    "other_values": ("the second run returned other values: the target is not deterministic, or keeps state elsewhere"),
    "other_events": "the second run had {second} events, the first {first}",
    "other_births": "the second run had other births",
    "second_run_raised": "the second run raised {exception}",
    "takes_from": (
        "the target was called once: it takes from {taken}, which goes on from where it is and cannot be put back"
    ),
    "together": "one of several processes, which would have to run it again together",
    "run_again": lambda v: (
        f"run again, it was another: {_REASON}" if v["why"] is None else f"run again, {reason(v['why'])}"
    ),
    "run_again_eagerly": (
        "run again without torch.compile, it bore nothing bad: what the compiler made of the program is the suspect"
    ),
    "raised": "it raised {exception}",
    "bore_nothing": "it bore nothing bad",
    "bore_others": "it bore other bad numbers: it is not the same each time, or has changed what it reads",
    # where a bad number came from
    "uninitialised": "uninitialised memory",
    "entered": _entered,
    "spoilt_during": "spoilt during or before step {step} of {optimizer}",
    "bad_before": "bad before step {step}",
    "left_by_processes": "as {operation} of several processes left it",
    "ahead": "a tensor (made before what was run again, from {place} on)",
    "written_by": "a constant that {operator} writes",
    "outside_support": "what log_prob gives outside of the support",
    "kept_for_derivative": "what an operator keeps for its derivative",
    "mask_of_finfo": "a mask of finfo.min, which is -Inf here",
    "model_value": "{sort} {value_name}",
    "unseen_value": "value {value_name}, which was not looked at when it was made",
    # what an event did
    "wrote_last": "{operator} wrote it last",
    "program_writes": "the program writes {result:#}",
    "model_writes": "the model writes {result:#}",
    "made_range": _made_range,
    "drew": "{operator} drew {result:#}",
    "made": "{operator} made it {result:#}",
    "gives": "{operator} gives {result:#}",
    "cast": lambda v: f"{short_text(v['operand'])} as {v['dtype']} is {short_text(v['result'])}{_least(v)}",
    "turned_into": "{operator} made {operand:#} into {result:#}",
    "row_of": "{operator} of a row of {operand:#} is {result:#}",
    "range_of": "{operator} of values from {low:#} to {high:#} is {result:#}",
    "computed": _computed,
    "scaled": _scaled,
    "logit_of_infinity": "{operator} of a logit of -Inf is {result:#}",
    "product_term": _product_term,
    "outside": _outside,
    "reordered": lambda v: "a reordered initializer" + (f" is {short_text(v['result'])}" if v["known"] else ""),
    "body_begins": lambda v: f"{v['value_name']}{_index(v)} is {short_text(v['result'])} as {v['body']} begins",
    "made_by_numpy": lambda v: f"NumPy makes {v['bad']}",
    "holds": lambda v: f"{reason(v['origin'])} holds {v['bad']}" + (f" at {_index(v)}" if v["index"] else ""),
    "expression": _expression,
    "bears": lambda v: (
        f"{v['operator'] or 'a value'} gives {v['bad']}"
        + (", computed from what the forward has saved" if v["back"] else "")
    ),
    "carries_on": "{operator} carries it on",
    "times_zero": "{operator} by 0 carries it on: 0 times NaN is NaN",
    "infinity_times_zero": "{operator} by 0 makes NaN of it: 0 times Inf is NaN",
    "float64_differs": "{operator} gives {result:#}, where {meant:#} is the value in float64",
    "made_of_bad": "{operator} makes {result:#} of {bad}",
    "drops_nan": "{operator} drops NaN",
    "place_of_nan": "{operator} takes NaN for a place",
    "more_events": lambda v: "more events" if v["count"] is None else f"{v['count']} more events",
    "reached": _reached,
    "decided": lambda v: f"{_DOES[v['does']]} because {_TESTS[v['tests']]} is {_held(v['held'])}",
    "operation_result": "the result of the operation",
    "result_of": "the result of {operator}",
    "came_in": "what came in",
    "gives_bad": "{operator:?a value} gives a bad number",
    "leaves": "where it leaves",
    "not_compared": "not compared",
    "runs_differ": lambda v: f"two runs of {_BARE[v['engine']]} differ from each other",
    "slow_run": "a run takes {seconds:.0f} seconds: it was not made once more to compare with",
    "bits_equal": lambda v: f"{v['outputs']} of {v['outputs']} outputs have the bits of {_BARE[v['engine']]}'s",
    "sides_differ": "{what}",
    "harmless_difference": (
        "{op} of B gives other numbers for {value_name}, up to {max_abs:#} apart, which change no output"
    ),
    "not_judged": "{count:value} of B differ from those of A and could not be judged, such as {names}",
    "amplified": (
        "the output {output} differs by {max_rel:#} of its size, and no operation is out of line: rounding is amplified"
    ),
    "bits_differ": lambda v: f"other bits than {_BARE[v['engine']]}'s: {_WORDS.format_field(v['outputs'], '')}",
}
"""A sentence for every kind of note."""
