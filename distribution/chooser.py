#!/usr/bin/env python3
"""Starts the plug-in beside it that suits a version of Python of this machine; the running version comes first."""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent  # krew starts it by a link
FILES = {file.stem: file for file in HERE.glob("python*.pyz")}
RUNNING = f"python{sys.version_info.major}.{sys.version_info.minor}"

if RUNNING in FILES:
    os.execv(sys.executable, [sys.executable, str(FILES[RUNNING]), *sys.argv[1:]])  # noqa: S606 -- the packed plug-in
for name, plugin in sorted(
    FILES.items(), key=lambda each: [int(part) for part in each[0][6:].split(".")], reverse=True
):
    if (program := shutil.which(name)) is not None:
        os.execv(program, [program, str(plugin), *sys.argv[1:]])  # noqa: S606 -- the packed plug-in
sys.exit(f"error: kubectl turnstile needs {' or '.join(sorted(FILES))} in the PATH, not {sys.version.split()[0]}")
