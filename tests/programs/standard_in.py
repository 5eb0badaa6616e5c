"""Reads what it is given, to the end and beyond."""

import sys

first = input("first? ")
print(repr(first), repr(sys.stdin.readline()), sys.stdin.buffer.read(3))
rest = sys.stdin.read()
print(len(rest), rest.count("\n"))
try:
    input("more? ")
except EOFError as error:
    print("no more:", error)
input()
