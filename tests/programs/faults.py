"""faulthandler, on at the start and dumping to a file."""

import faulthandler
import signal
import sys
import tempfile

if "torch" in sys.argv:
    import torch

    assert torch.ones(1).sum().item() == 1

print(faulthandler.is_enabled())
faulthandler.enable()
with tempfile.TemporaryFile("w+") as file:
    faulthandler.dump_traceback(file)
    faulthandler.register(signal.SIGUSR1, file, all_threads=False)
    signal.raise_signal(signal.SIGUSR1)
    faulthandler.unregister(signal.SIGUSR1)
    file.seek(0)
    print([line.strip() for line in file if __file__ in line])
faulthandler.disable()
