import sys

from ..area import square

SIDE = 3

if __name__ == "__main__":
    print(__name__, __package__, __spec__.name, __file__, square(SIDE), sys.argv, sys.path[0])
