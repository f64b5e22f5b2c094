#!/usr/bin/env python3
"""What the guides quote is what the program prints.

Usage: quoted_output.py SHARDLINE GUIDE...

In each guide, in a folder of its own, every block that begins with "$ " is run, command by command, and every line
below a command must stand in its output: blanks count as one, "..." stands for anything. A YAML block that begins
with "name: x" is the file x.yaml. Before a block, `<!-- run: COMMAND -->` prepares it and `<!-- not run: WHY -->`
leaves it out. A block that begins with a blank is output without its command, which nobody can check: a fault.
Where a guide says `<!-- times in the text are printed -->`, every time and rate in its text ("18.6 ms", "73.1
tokens/s/GPU") must stand in some command or output of its blocks, or in `<!-- computed: 16 ms = 0.8 x 20 ms -->`.
Checks first, on made-up guides, that what is wrong is found.
"""
import os
import re
import subprocess
import sys
import tempfile


def normal(text):
    return re.sub(r"\s+", " ", text).strip()


def stands_in(line, output):
    parts = [p for p in map(normal, line.split("...")) if p]
    for candidate in output:
        at = 0
        for part in parts:
            at = candidate.find(part, at)
            if at < 0:
                break
            at += len(part)
        else:
            return True
    return not parts


QUANTITY = re.compile(r"(?<![\w.,/+-])(\d+(?:\.\d+)?) (us|ms|s|tokens/s/GPU)(?![\w/])")
CHECKED = "<!-- times in the text are printed -->"


def unprinted(guide, printed):
    """(line, quantity) of the text outside blocks that no command printed and no comment computes."""
    known = {match.group() for text in printed for match in QUANTITY.finditer(text)}
    # Rates stand in columns, without their unit.
    known |= {f"{n} tokens/s/GPU" for text in printed for n in re.findall(r"(?<!\S)\d+\.\d+(?!\S)", text)}
    for comment in re.findall(r"<!-- computed: (.*?)-->", guide, re.DOTALL):
        known |= {match.group() for match in QUANTITY.finditer(comment)}
    fenced = False
    for number, line in enumerate(guide.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("<!--"):
            for match in QUANTITY.finditer(re.sub(r"`[^`]*`", "", line)):
                if match.group() not in known:
                    yield number, match.group()


def run(command, folder, environment):
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return [normal(line) for line in done.stdout.splitlines()]


def blocks(guide):
    """(number of the first line, kind, lines, comments before it)"""
    fenced, comments = None, []
    for number, line in enumerate(guide.splitlines(), 1):
        if line.startswith("```"):
            if fenced is None:
                fenced = (number + 1, line[3:].strip(), [], comments)
            else:
                yield fenced
                fenced, comments = None, []
        elif fenced is not None:
            fenced[2].append(line)
        elif line.startswith("<!--"):
            comments.append(line[4:].rsplit("-->", 1)[0].strip())


def faults(name, guide, environment):
    printed = []
    with tempfile.TemporaryDirectory() as folder:
        for number, kind, lines, comments in blocks(guide):
            if kind == "yaml" and lines and lines[0].startswith("name: "):
                with open(os.path.join(folder, lines[0][6:].strip() + ".yaml"), "w", encoding="utf-8") as out:
                    out.write("\n".join(lines) + "\n")
            if not kind and lines and lines[0].startswith(" "):
                yield f"{name}:{number}: output without its command"
            if kind or not lines or not lines[0].startswith("$ "):
                continue
            if any(c.startswith("not run:") for c in comments):
                continue
            for comment in comments:
                if comment.startswith("run:"):
                    run(comment[4:], folder, environment)
            output = []
            for at, line in enumerate(lines, number):
                if line.startswith("$ "):
                    output = run(line[2:], folder, environment)
                    printed += [line, *output]
                elif not stands_in(line, output):
                    yield f"{name}:{at}: not printed: {line.strip()}"
    if CHECKED in guide:
        for number, quantity in unprinted(guide, printed):
            yield f"{name}:{number}: {quantity} is in no output"


def main():
    shardline, guides = os.path.abspath(sys.argv[1]), sys.argv[2:]
    environment = dict(os.environ, PATH=os.path.dirname(shardline) + ":" + os.environ["PATH"])
    for variable in ("COLUMNS", "NO_COLOR"):
        environment.pop(variable, None)
    made_up = "```\n$ echo one  two\none ...\ntwo one\n```\n"
    if list(faults("made up", made_up, environment)) != ["made up:4: not printed: two one"]:
        sys.exit("quoted_output.py does not find a wrong line")
    made_up = CHECKED + "\nIt takes 2 ms, 3 ms or 4 ms.\n<!-- computed: 3 ms = 1.5 x 2 ms -->\n```\n  two\n```\n```\n$ echo 2 ms\n```\n"
    if list(faults("made up", made_up, environment)) != [
        "made up:5: output without its command",
        "made up:2: 4 ms is in no output",
    ]:
        sys.exit("quoted_output.py does not find a wrong time in the text")
    wrong = []
    for guide in guides:
        with open(guide, encoding="utf-8") as text:
            wrong += faults(os.path.basename(os.path.dirname(guide)) + "/" + os.path.basename(guide), text.read(), environment)
    print("\n".join(wrong) if wrong else "guides quote what the program prints")
    sys.exit(1 if wrong else 0)


main()
