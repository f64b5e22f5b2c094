"""What a terminal sees and a pipe does not: colours unless NO_COLOR is set, lines of its width, and progress with the time
that is left for what takes more than a second. Usage: terminal.py BINARY"""
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

BINARY = os.path.abspath(sys.argv[1])
COLUMNS = 80
PLAN = ["plan", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "8", "--input", "8K", "--output", "1K", "--ttl", "20 ms"]
# Many times the second after which the time that is left is said (10 s on a small machine), ended once that is seen:
# every plan, of up to 256 chunks, is simulated, on one thread.
LONG = ["sweep", "prefill_llama8b_512k", "--exhaustive", "--threads", "1"]
BAR = re.compile(rb"\r\x1b\[K\S+ \[[#.]{24}\] [0-9]+/[0-9]+ plans, [0-9]+ plans/s, [0-9]+ s left")
MANY_CHUNKS = "pipeline:pp=8,prefill_chunk=4,batch=1"
# Without the time that is left, which is said after a second: a fast machine has then taken all of them.
CHUNKS = re.compile(rb"\r\x1b\[K\S+ \[[#.]{24}\] [0-9]+/262144 chunks, [0-9]+ chunks/s")
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def require(holds, text):
    if not holds:
        print("FAILED:", text)
        sys.exit(1)


def environment(more):
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    return {**kept, "TERM": "xterm", **more}


def read_all(end):
    out = b""
    while True:
        try:
            part = os.read(end, 65536)
        except OSError:  # Linux's answer where the other end is closed
            return out
        if not part:
            return out
        out += part


def on_terminal(arguments, streams, until=None, **more):
    """What a terminal of 80 columns gets of the `streams` ("stdout", "stderr"); the others are pipes that nobody looks at.
    Ends the program when `until` has come."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    others = {s: subprocess.DEVNULL for s in ("stdout", "stderr")}
    process = subprocess.Popen([BINARY, *arguments], stdin=subprocess.DEVNULL, env=environment(more),
                               **{**others, **{s: theirs for s in streams}})
    os.close(theirs)
    out = b""
    while until is not None and not until.search(out):
        try:
            out += os.read(ours, 65536)
        except OSError:
            break
    if until is not None:
        process.terminate()
    out += read_all(ours)
    process.wait()
    os.close(ours)
    return out


def in_pipes(arguments, **more):
    ran = subprocess.run([BINARY, *arguments], stdin=subprocess.DEVNULL, capture_output=True, env=environment(more))
    return ran.stdout, ran.stderr


def colours():
    shown = on_terminal(PLAN, ["stdout"])
    require(COLOUR.search(shown), f"no colours on a terminal: {shown[:200]}")
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        plain = on_terminal(PLAN, ["stdout"], **{name: value})
        require(b"\x1b" not in plain, f"{name}={value} does not end colours: {plain[:200]}")
        require(plain == COLOUR.sub(b"", shown), f"{name}={value} changes more than colours")
    require(on_terminal(PLAN, ["stdout"], NO_COLOR="") == shown, "an empty NO_COLOR is none (no-color.org)")
    # The terminal is that of standard output, not of standard error.
    piped, warnings = in_pipes(PLAN)
    require(b"\x1b" not in piped and b"\r" not in piped, "colours in a pipe")
    require(b"\x1b" not in warnings, "colours on a piped standard error")
    return shown


def widths(shown):
    def longest(text):
        return max(len(line.decode()) for line in COLOUR.sub(b"", text).replace(b"\r", b"").split(b"\n"))
    require(longest(shown) <= COLUMNS, f"a line of {longest(shown)} columns on a terminal of {COLUMNS}")


def progress():
    shown = on_terminal(LONG, ["stderr"], until=BAR)
    require(BAR.search(shown), f"no progress on a terminal: {shown[:200]}")
    # It is wiped before what follows, so that nothing of it is left on the screen.
    require(b"\r\x1b[K" in shown[BAR.search(shown).end():], f"progress is left on the screen: {shown[-200:]}")
    out, errors = in_pipes(["sweep", "prefill_405b_gb200_1m", "--threads", "1"])
    for name, text in (("output", out), ("error", errors)):
        require(b"s left" not in text and b"\r" not in text, f"progress in a piped standard {name}: {text[:200]}")
    on_output = on_terminal(["sweep", "prefill_405b_gb200_1m", "--threads", "1"], ["stdout"])
    require(b"s left" not in on_output, "progress on standard output")
    # A dumb terminal obeys no escape sequences, and would show them.
    dumb = on_terminal(["sweep", "prefill_405b_gb200_1m", "--threads", "1"], ["stderr"], TERM="dumb")
    require(b"s left" not in dumb and b"\x1b" not in dumb and b"plans/s" not in dumb, f"progress on a dumb terminal: {dumb[:200]}")
    # One step of 262,144 chunks is one simulation, which lasts.
    for command in ("simulate", "explain"):
        shown = on_terminal([command, "prefill_llama8b_1m", "--plan", MANY_CHUNKS], ["stderr"], until=CHUNKS)
        require(CHUNKS.search(shown), f"{command}: no progress within one simulation: {shown[:200]}")


def room():
    """Intervals of TPOT, TTFT and the rate take more than 80 columns: they stand in two tables then."""
    asked = ["explain", *PLAN[1:], "--plan", "tensor:tpa=8,tpf=8,batch=8"]
    narrow, wide = in_pipes(asked, COLUMNS="80")[0], in_pipes(asked, COLUMNS="120")[0]
    row = re.compile(rb"^  HBM bandwidth +([-+].*)$", re.MULTILINE)
    counts = {columns: [found.count(b"to") for found in row.findall(text)] for columns, text in ((80, narrow), (120, wide))}
    require(counts == {80: [2, 1], 120: [3]}, f"intervals in the tables of so many columns: {counts}")
    require(all(len(line) <= COLUMNS for line in narrow.split(b"\n")), "a line above 80 columns")


def narrow_terminals():
    """Tables of plans, explanations and comparisons take the terminal that there is: only a word is longer than its line."""
    line = [*PLAN[1:-2], "--rate", "60/s"]
    asked = {"plan": ["plan", *line], "plan of users": ["plan", *PLAN[1:-2], "--users", "2000"], "explain": ["explain", *line],
             "compare": ["compare", *line], "prefill": ["plan", *PLAN[1:-4]]}
    for name, arguments in asked.items():
        whole = in_pipes(arguments)[0].decode()
        for columns in (80, 79, 60, 40):
            text = in_pipes(arguments, COLUMNS=str(columns))[0].decode()
            wide = [row for row in text.split("\n") if len(row) > columns and len(row.rstrip("\\").split()) > 2]
            require(not wide, f"{name} at {columns} columns: {wide}")
            # Nothing but what the table says is left out of it.
            for word in ("GPUs", "users", "requests/s", "TTFT", "kernels'") if "left out" not in text else ():
                require((word in whole) == (word in text), f"{name} at {columns} columns: {word}\n{text}")
        shown = on_terminal(arguments, ["stdout"], COLUMNS="60")
        require(COLOUR.sub(b"", shown).replace(b"\r", b"").decode() == in_pipes(arguments, COLUMNS="60")[0].decode(),
                f"{name}: a terminal gets other lines than a pipe of as many columns")


if __name__ == "__main__":
    widths(colours())
    progress()
    room()
    narrow_terminals()
