"""A folder that is run as a program."""

import sys

import part

print(__name__, __file__, __package__, __spec__.name, sys.argv, sys.path[0], part.__file__)
