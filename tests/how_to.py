"""Every command of the program has a row in the index of planner/cli/README.md and a section below it, and rows lead to
sections. Usage: how_to.py BINARY README.md"""
import re
import subprocess
import sys


def faults(commands, guide):
    index = guide[:guide.index("\n## ")]
    rows = [line for line in index.splitlines() if line.startswith("| ")]
    linked = {anchor for row in rows for anchor in re.findall(r"\]\(#([^)]+)\)", row)}
    sections = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
                for title in re.findall(r"^#{2,3} (.+)$", guide, re.MULTILINE)}
    found = [f"{c}: no row in the index" for c in commands if c not in linked]
    found += [f"{c}: no section" for c in commands if c not in sections]
    return found + [f"#{a}: a row that leads nowhere" for a in sorted(linked - sections)]


def main():
    shown = subprocess.run([sys.argv[1], "--help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  ([a-z]+) {2,}\S", shown, re.MULTILINE)
    with open(sys.argv[2], encoding="utf-8") as file:
        guide = file.read()
    if len(commands) < 10:
        sys.exit(f"no list of commands in --help:\n{shown}")
    # What the test is for is noticed.
    assert faults(["plan", "nothing"], guide) == ["nothing: no row in the index", "nothing: no section"] + faults([], guide)
    found = faults(commands, guide)
    print("\n".join(found))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
