import sys

from . import area
from .inner.side import SIDE

print(__name__, __package__, __spec__.name, area.square(SIDE), sys.argv[1:])
