"""A signal that a child sends to the whole group arrives once."""

import signal
import subprocess
import time

seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append("USR1"))
for _ in range(3):
    subprocess.run(["sh", "-c", "kill -USR1 0; exit 0"])
    # whatever else would come has time to come
    time.sleep(0.1)
print(len(seen))
