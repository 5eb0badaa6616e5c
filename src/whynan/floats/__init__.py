"""Facts about numbers: the formats of tensors, their limits and neighbours, and numbers as text."""

from whynan.floats.formats import FORMATS as FORMATS
from whynan.floats.formats import GREATEST_EXPONENTS as GREATEST_EXPONENTS
from whynan.floats.formats import Format as Format
from whynan.floats.formats import format_of as format_of
from whynan.floats.formats import smallest as smallest
from whynan.floats.formats import ulp as ulp
from whynan.floats.text import describe_limit as describe_limit
from whynan.floats.text import format_value as format_value
from whynan.floats.text import infinity as infinity
from whynan.floats.text import short_text as short_text
