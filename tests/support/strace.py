"""True if ``strace`` can be used here."""

import shutil
import subprocess


def why_not() -> str:
    """Say why there is no ``strace`` here; empty if there is."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    done = subprocess.run(["strace", "-o", "/dev/null", "true"], check=False, capture_output=True, text=True)
    return f"strace may not trace: {done.stderr.strip()}" if done.returncode else ""


WHY_NOT = why_not()
"""Empty if it can be."""
