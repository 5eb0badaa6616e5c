"""Leaves its directory, and takes away what it wrote."""

import os
import sys
import tempfile

start = os.getcwd()
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    if "torch" in sys.argv:
        import torch

        torch.save({"weight": torch.arange(3.0)}, "weights.pt")
        print(torch.load("weights.pt")["weight"].tolist())
    with open("note.txt", "w") as file:
        file.write("a note")
    print(sorted(os.listdir()), os.path.relpath(__file__, start) if os.path.isabs(__file__) else __file__)
    os.chdir("/")
print(os.getcwd(), os.path.exists(folder))
