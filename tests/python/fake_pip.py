"""Stands in for pip: `download … --dest DIR -- REQUIREMENT` copies what $FAKE_PIP_WHEELS/REQUIREMENT/ holds. Its arguments are logged."""
import json
import os
import shutil
import sys
import time

args = sys.argv[1:]
root = os.environ["FAKE_PIP_WHEELS"]
with open(os.path.join(root, "log"), "a") as log:
    log.write(json.dumps(args) + "\n")
requirement = args[args.index("--") + 1]
folder = os.path.join(root, requirement)
if os.environ.get("FAKE_PIP_SLEEP") and not os.path.exists(os.path.join(root, "slept")):
    open(os.path.join(root, "slept"), "w").close()
    with open(os.path.join(root, "pid.new"), "w") as out:
        out.write(str(os.getpid()))
    os.rename(out.name, os.path.join(root, "pid"))  # whole as soon as it is there
    print("Downloading x.whl (10.0 MB)")
    time.sleep(float(os.environ["FAKE_PIP_SLEEP"]))
if not os.path.isdir(folder):
    print("some chatter")
    print(f"ERROR: No matching distribution found for {requirement}", file=sys.stderr)
    print("hint: a last line", file=sys.stderr)
    sys.exit(1)
for name in os.listdir(folder):
    shutil.copy(os.path.join(folder, name), os.path.join(args[args.index("--dest") + 1], name))
