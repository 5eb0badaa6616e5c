"""What operators mean, as data."""

from whynan.ops.aten import base_name as base_name
from whynan.ops.aten import is_foreach as is_foreach
