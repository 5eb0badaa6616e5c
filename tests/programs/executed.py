"""Code made at run time, and where it says it comes from."""

import code
import sys
import traceback
import types

space = {"__name__": "made"}
exec(compile("def f(x):\n    return x / 0\n", "<made>", "exec"), space)
try:
    space["f"](1)
except ZeroDivisionError:
    traceback.print_exc()
print(eval("__name__, __file__ == sys.argv[0]"), space["f"].__module__)
module = types.ModuleType("invented")
exec("import sys\nhere = sys._getframe().f_back.f_lineno", module.__dict__)
print(module.here, traceback.extract_stack()[-1].name)
console = code.InteractiveConsole({"x": 3})
console.push("x + 1")
console.push("raise ValueError(x)")
exec(open(__file__).read().partition("\n")[0])
sys.stdout.flush()
exec("raise LookupError('from exec')")
