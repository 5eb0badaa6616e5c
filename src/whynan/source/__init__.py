"""Where code stands: whose it is, its place in the source, its expressions, and what its files were."""

from whynan.source.expressions import operand_expressions as operand_expressions
from whynan.source.ownership import Owner as Owner
from whynan.source.ownership import owner_of as owner_of
from whynan.source.ownership import owner_of_code as owner_of_code
from whynan.source.positions import resolve as resolve
from whynan.source.positions import sha256_of as sha256_of
