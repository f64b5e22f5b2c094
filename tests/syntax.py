"""Compiles what a build folder has no object of, without making one: warnings and errors of a second compiler, for two
thirds of the time of a build with its links. The command of each file is the build's own, from compile_commands.json. Of
a fresh build folder: an object that an older build left there passes for built.
Usage: syntax.py BUILD [JOBS]"""
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def command_of(entry):
    """The words that compile the file, without an object, and the object that the build would make."""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    made = os.path.join(entry["directory"], words[at + 1])
    return [*words[:at], "-fsyntax-only", *words[at + 2:]], made


def check(entry):
    words, made = command_of(entry)
    if os.path.exists(made):
        return None
    ran = subprocess.run(words, cwd=entry["directory"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    # Warnings are errors where the preset says so, and are shown in any case.
    return entry["file"], ran.returncode, ran.stderr


def main():
    with open(os.path.join(sys.argv[1], "compile_commands.json")) as file:
        entries = json.load(file)
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    with ThreadPoolExecutor(jobs) as pool:
        checked = [one for one in pool.map(check, entries) if one is not None]
    for file, code, said in checked:
        if code != 0 or said:
            print(f"{file}: exit {code}\n{said}")
    failed = sum(code != 0 for _, code, _ in checked)
    print(f"{len(entries)} files, {len(entries) - len(checked)} of them built, {len(checked)} checked, {failed} failed")
    return 1 if failed or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
