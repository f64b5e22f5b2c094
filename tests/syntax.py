"""Compiles what a build folder has no object of, without making one: warnings and errors of a second compiler, for half the
time of a build. The command of each file is the build's own, from compile_commands.json. Where PART is K/N, of the files
that are compiled alone (of no unity) only those whose path falls into part K of N: what these find is mostly that a file
fails to include what it uses, which the unity builds of all others hide and which hurts nobody soon. Of a fresh build
folder: an object that an older build left there passes for built.
Usage: syntax.py BUILD [--jobs N] [--part K/N]"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor


def command_of(entry):
    """The words that compile the file, without an object, and the object that the build would make."""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    return [*words[:at], "-fsyntax-only", *words[at + 2:]], words[at + 1]


def built(entry):
    return os.path.exists(os.path.join(entry["directory"], command_of(entry)[1]))


def alone(entry, build):
    return os.path.relpath(entry["file"], build).startswith("..")


def in_part(entry, build, part):
    """By the path below the folder of the sources, which all checkouts share."""
    number, of = part
    return not alone(entry, build) or zlib.crc32(os.path.relpath(entry["file"], build).encode()) % of == number


def check(entry):
    words, _ = command_of(entry)
    ran = subprocess.run(words, cwd=entry["directory"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    # Warnings are errors where the preset says so, and are shown in any case.
    return entry["file"], ran.returncode, ran.stderr


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("build")
    asked.add_argument("--jobs", type=int, default=os.cpu_count())
    asked.add_argument("--part", default="0/1")
    args = asked.parse_args()
    build, part = os.path.abspath(args.build), tuple(int(n) for n in args.part.split("/"))
    with open(os.path.join(build, "compile_commands.json")) as file:
        entries = json.load(file)
    open_ones = [entry for entry in entries if not built(entry)]
    asked_for = [entry for entry in open_ones if in_part(entry, build, part)]
    with ThreadPoolExecutor(args.jobs) as pool:
        checked = list(pool.map(check, asked_for))
    for file, code, said in checked:
        if code != 0 or said:
            print(f"{file}: exit {code}\n{said}")
    failed = sum(code != 0 for _, code, _ in checked)
    print(f"{len(entries)} files, {len(entries) - len(open_ones)} of them built, {len(open_ones) - len(checked)} left to another part, "
          f"{len(checked)} checked, {failed} failed")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
