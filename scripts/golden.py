"""Record the report of every test program, and compare two recordings.

    python scripts/golden.py record DIR [--only PREFIX]     one JSON file a program, without times, versions and paths
    python scripts/golden.py compare BEFORE AFTER           what differs; the exit status is 1 if anything does

A recording is made in the folder of a checkout, with the environment of that checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path.cwd()
sys.path.insert(0, str(ROOT))
TEMPORARY = re.escape(os.path.join(tempfile.gettempdir(), tempfile.gettempprefix()))
FORGOTTEN = {"versions", "data", "sha256", "sources", "trace"}
"""Fields that differ from machine to machine, or from run to run."""


class Case(NamedTuple):
    """A program: its name, and what makes its document; it is given a folder of its own."""

    name: str
    document: Callable[[Path], dict[str, Any] | None]


def in_process() -> Iterator[Case]:
    """The programs that need no process of their own."""
    import torch

    import whynan
    from tests.quality import healthy_generation, healthy_training  # noqa: F401
    from tests.quality.healthy_numbers import PROGRAMS as HEALTHY
    from tests.quality.models import BY_NAME, NAMES, Step, variants
    from tests.quality.test_blind_spots import SPOTS
    from tests.rules.hazards import PROGRAMS as HAZARDS
    from tests.rules.test_no_hazards import CASES as NO_HAZARDS

    def explained(function: Callable[..., Any], *inputs: Any) -> dict[str, Any]:
        torch.manual_seed(0)
        return json.loads(whynan.explain(function, *inputs).to_json())

    def traced(function: Callable[[], object]) -> dict[str, Any]:
        torch.manual_seed(0)
        with whynan.trace() as trace:
            function()
        return json.loads(trace.report.to_json())

    for number, program in HAZARDS.items():
        yield Case(f"hazard/{number}", lambda _, p=program: explained(p))
    for name, (function, inputs) in NO_HAZARDS.items():
        yield Case(f"no-hazard/{name}", lambda _, f=function, i=inputs: explained(f, *[x.clone() for x in i]))
    for name, program in HEALTHY.items():
        yield Case(f"healthy/{name}", lambda _, p=program: traced(p))
    for spot in SPOTS:
        yield Case(f"blind-spot/{spot.program.__name__}", lambda _, s=spot: traced(s.program))
    for number, name in enumerate(NAMES):
        found = variants(BY_NAME[name])
        variant = found[number % len(found)]
        yield Case(f"model/{name}", lambda _, n=name, v=variant: traced(Step(BY_NAME[n], v).run))


def variants() -> Iterator[Case]:
    """The sample of the hazards' variants, on bad operands and on healthy ones."""
    from tests.quality.test_variants import sample
    from tests.quality.variants.judging import judge

    def judged(variant: Any, name: str, bad: bool, folder: Path) -> dict[str, Any]:
        found = judge(variant, folder, name, bad=bad)
        return {"rules": found.rules, "matched": found.matched, "skipped": found.skipped}

    for number, variant in enumerate(sample()):
        for bad in (True, False):
            name = f"v{number}_{'bad' if bad else 'good'}"
            yield Case(f"variant/{name}", partial(judged, variant, name, bad))


def models() -> Iterator[Case]:
    """The ONNX cases."""
    import onnx
    from onnx import helper

    import whynan
    from tests.defects import DEFECTS
    from tests.onnx_engine import model_of
    from tests.quality.conformance import sample
    from tests.rules.test_onnx_hazards import CASES

    def told(model: Any, feeds: dict[str, Any], folder: Path) -> dict[str, Any]:
        path = folder / "model.onnx"
        onnx.save(model, str(path))
        return json.loads(whynan.explain(path, feeds).to_json())

    def single(case: Any, values: tuple[Any, ...], folder: Path) -> dict[str, Any]:
        feeds = {f"x{i}": value for i, value in enumerate(values)}
        node = helper.make_node(case.op, list(feeds), ["y"], name="node", **case.attributes)
        return told(model_of([node], feeds, ["y"], opset=case.opset), feeds, folder)

    for number, case in enumerate(CASES):
        for kind in ("bad", "good"):
            yield Case(f"onnx/{number} {case} {kind}", partial(single, case, getattr(case, kind)))
    for name, make in DEFECTS.items():
        defect = make()
        for kind in ("failing", "healthy"):
            yield Case(f"onnx-defect/{name} {kind}", partial(told, defect.model, getattr(defect, kind)))
    for case in sample():
        yield Case(f"onnx-conformance/{case.name}", partial(told, case.proto, case.feeds))


def commands() -> Iterator[Case]:
    """The programs that ``whynan run`` starts."""
    from tests.integration.examples import NAMES as EXAMPLES
    from tests.integration.programs import BAD, PROGRAMS, Program
    from tests.integration.running import Workplace

    own_errors = {"WHYNAN_RAISE_INTERNAL": "1"}

    def programme(program: Program, options: tuple[str, ...], folder: Path) -> dict[str, Any] | None:
        place = Workplace(folder)
        outcome = place.by_whynan(program, own_errors, ("--quiet", *options))
        return {"status": outcome.status, "stderr": outcome.stderr.decode(errors="replace"), "report": place.told()}

    def script(path: Path, options: tuple[str, ...], folder: Path) -> dict[str, Any]:
        report = folder / "report.json"
        command = [sys.executable, "-m", "whynan", "run", "--json", str(report), *options, path.name]
        kept = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TMPDIR": str(folder), "COLUMNS": "100"}
        environment = {**os.environ, **own_errors, **kept, "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(command, cwd=path.parent, env=environment, capture_output=True, text=True, check=False)
        document = json.loads(report.read_text("utf-8")) if report.exists() else None
        return {"status": done.returncode, "terminal": done.stderr, "report": document}

    for program in [*PROGRAMS, *BAD]:
        if program.seen == "traced":
            yield Case(f"program/{program.name}", partial(programme, program, ()))
    for path in sorted((ROOT / "tests" / "trainings").glob("*.py")):
        yield Case(f"training/{path.stem}", partial(script, path, ("--mode", "watch")))
    for name in sorted(EXAMPLES):
        yield Case(f"example/{name}", partial(script, ROOT / "examples" / name / "train.py", ()))


def cases(only: str) -> Iterator[Case]:
    """All of them whose names begin so."""
    kinds = {
        in_process: "hazard no-hazard healthy blind-spot model",
        variants: "variant",
        models: "onnx onnx-defect onnx-conformance",
        commands: "program training example",
    }
    for make, names in kinds.items():
        if any(name.startswith(only.partition("/")[0]) for name in names.split()):
            yield from (case for case in make() if case.name.startswith(only))


def plain(value: Any, folder: Path) -> Any:
    """A document without what differs from run to run."""
    if isinstance(value, dict):
        return {k: plain(v, folder) for k, v in value.items() if k not in FORGOTTEN}
    if isinstance(value, list | tuple):
        return [plain(v, folder) for v in value]
    if isinstance(value, str):
        text = value.replace(str(folder), "FOLDER").replace(str(ROOT), "ROOT")
        return re.sub(rf"0x[0-9a-f]{{6,}}|whynan-\w{{8}}\b|{TEMPORARY}\w{{8}}\b", "X", text)
    return value


def record(folder: Path, only: str) -> None:
    """Write a document for each program that has none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for case in cases(only):
        target = folder / (re.sub(r"[^\w.-]+", "_", case.name.replace("/", "--"))[:150] + ".json")
        if target.exists():
            continue
        with tempfile.TemporaryDirectory() as place:
            try:
                document = plain(case.document(Path(place)), Path(place))
            except Exception as error:
                document = {"raised": f"{type(error).__name__}: {error}"}
        target.write_text(json.dumps(document, indent=1, sort_keys=True), "utf-8")
        print(case.name, flush=True)


def different(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """The places in which two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from different(before.get(key), after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from different(one, other, f"{path}[{number}]")
    elif before != after:
        yield f"{path}: {short(before)} -> {short(after)}"


def short(value: Any) -> str:
    """A value on a line."""
    text = json.dumps(value)
    return text if len(text) < 300 else f"{text[:300]}..."


def compare(before: Path, after: Path) -> int:
    """Print what differs; the number of programs that do."""
    names = sorted({p.name for folder in (before, after) for p in folder.glob("*.json")})
    differing = 0
    for name in names:
        pair = [folder / name for folder in (before, after)]
        if not all(p.exists() for p in pair):
            found = ["only in " + str(next(p for p in pair if p.exists()).parent)]
        else:
            found = list(different(*(json.loads(p.read_text("utf-8")) for p in pair)))
        if found:
            differing += 1
            print(name.removesuffix(".json"), *found[:40], sep="\n    ")
    print(f"{len(names)} programs, {differing} differ")
    return differing


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands_ = parser.add_subparsers(dest="command", required=True)
    recording = commands_.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--only", default="")
    comparing = commands_.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "record":
        record(given.folder, given.only)
        return 0
    return int(bool(compare(given.before, given.after)))


if __name__ == "__main__":
    sys.exit(main())
