"""Runs other programs in its own process: by path, by module name, out of an archive."""

import runpy
import sys
import zipfile

print(runpy.run_path("shapes/area.py", {"given": 1}, "named")["given"])
sys.argv[:] = ["replaced", "argument"]
print(sorted(n for n in runpy.run_module("shapes", run_name="__main__", alter_sys=True) if not n.startswith("_")))
with zipfile.ZipFile("bundle.zip", "w") as archive:
    archive.writestr(
        "zipped.py", "print(__name__, __file__, __loader__.__class__.__name__)\ndef f(): raise OSError(9)\n"
    )
    archive.writestr("__main__.py", "import zipped, sys\nprint(__name__, sys.argv, sys.path[0])\n")
runpy.run_path("bundle.zip", run_name="__main__")
sys.path.insert(0, "bundle.zip")
import zipped

print(__name__, sys.argv, sys.modules["__main__"].__file__ == __file__)
zipped.f()
