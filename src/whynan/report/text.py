"""Text from strangers made safe to show: control characters escaped, values short, arrays as ``f32[8, 4]``."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.floats import format_value

if TYPE_CHECKING:
    from whynan.records import Operand

SHORT_DTYPES = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "bool": "bool",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip


def shown(text: str) -> str:
    """One line of text with every control character, separator and lone surrogate escaped."""
    made: list[str] = []
    for char in text:
        code = ord(char)
        bad = code < 0x20 or 0x7F <= code < 0xA0 or char in "\u2028\u2029\u200e\u200f" or 0x202A <= code <= 0x202E
        if bad or 0x2066 <= code <= 0x2069:
            made.append(f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
        elif 0xD800 <= code <= 0xDFFF:
            made.append("\ufffd")
        else:
            made.append(char)
    return "".join(made)


def array(dtype: str, shape: tuple[int, ...]) -> str:
    """``f32[8, 4, 340]``; a 0-dim tensor is ``f32[]``."""
    return f"{SHORT_DTYPES.get(dtype, dtype)}[{', '.join(str(s) for s in shape)}]"


def bad_word(value: float | int | None) -> str:
    """NaN, Inf or -Inf."""
    return "NaN" if value is None or value != value else ("Inf" if value > 0 else "-Inf")


def operand_text(operand: Operand) -> str:
    """``imag = 1e-20``; of a row its range; of a value that is gone, how it could be had."""
    name = shown(operand.expression or operand.name)
    if operand.min is not None or operand.max is not None:
        of = f" of {array(operand.dtype, operand.shape)}" if operand.dtype and operand.shape is not None else ""
        if operand.min == operand.max:
            return f"{name}: every element {format_value(operand.min)}{of}"
        return f"{name}: from {format_value(operand.min)} to {format_value(operand.max)}{of}"
    if operand.value is None:
        if operand.dtype and operand.shape is not None and operand.origin != "gone":
            return f"{name}: {array(operand.dtype, operand.shape)}"
        return f"{name}: gone (explain(..., rerun=True) may recover it)"
    return f"{name} = {format_value(operand.value)}"


def encodable(text: str, encoding: str) -> str:
    """The text as an output's encoding can write it: typographic signs give way to plain ones."""
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        for sign, plain in (("·", "-"), ("…", "..."), ("²", "^2"), ("×", "x"), ("−", "-"), ("–", "-"), ("→", "->")):
            text = text.replace(sign, plain)
        return text.encode("ascii", "backslashreplace").decode("ascii")
    return text
