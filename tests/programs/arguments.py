"""A command line read with argparse, subcommands included."""

import argparse

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--json", help="not whynan's")
parser.add_argument("-v", "--verbose", action="count", default=0)
commands = parser.add_subparsers(dest="command", required=True)
train = commands.add_parser("train")
train.add_argument("--epochs", type=int, choices=[1, 2], default=1)
train.add_argument("files", nargs="*")

if __name__ == "__main__":
    print(vars(parser.parse_args()))
