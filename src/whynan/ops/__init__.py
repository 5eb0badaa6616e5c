"""What operators mean, as data."""

from whynan.ops.names import base_name as base_name
from whynan.ops.names import is_foreach as is_foreach
