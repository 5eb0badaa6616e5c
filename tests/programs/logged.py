"""Logging to both streams and a file, with the caller's name and line, and warnings caught by it."""

import logging
import sys
import warnings

logging.basicConfig(
    format="%(levelname)s %(name)s %(funcName)s:%(lineno)d %(process)s %(message)s".replace("%(process)s ", ""),
    level=10,
)
logging.captureWarnings(True)
log = logging.getLogger("training")
log.addHandler(logging.StreamHandler(sys.stdout))
log.addHandler(logging.FileHandler("run.log", mode="w"))

if "torch" in sys.argv:
    import torch

    log.info("loss %s", torch.full((2,), 0.25).sum().item().hex())

log.debug("begins")
log.warning("careful")
try:
    {}["x"]
except KeyError:
    log.exception("caught")
warnings.warn("through logging", stacklevel=1)
print(open("run.log").read())
print(sorted(name for name in logging.root.manager.loggerDict if "whynan" in name), logging.getLevelName(log.level))
