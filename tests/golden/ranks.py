"""plan --slo by several processes under mpirun: the bits of one alone, whatever their number; a process that is killed; a
command that they do not share; messages. Usage: ranks.py BINARY MPIEXEC"""
import json
import os
import re
import signal
import subprocess
import sys
import time

BINARY = os.path.abspath(sys.argv[1])
# As a user of one machine would; containers run as root.
MPIRUN = [sys.argv[2], "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
PLAN = [BINARY, "plan", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "8", "--input", "2K", "--output", "128",
        "--engine", "vllm", "--slo", "ttft p90 2 s, tpot p90 30 ms", "--rate", "20/s", "--requests", "400", "--threads", "1"]


def require(holds, text):
    if not holds:
        print("FAILED:", text)
        sys.exit(1)


def run(arguments, ranks=0, options=(), **more):
    started = ([*MPIRUN, *options, "-np", str(ranks)] if ranks else []) + list(arguments)
    return subprocess.run(started, stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**os.environ, **more})


def same_bits():
    alone = run([*PLAN, "--json"])
    require(alone.returncode == 0, f"alone: {alone.returncode} {alone.stderr}")
    require(len(json.loads(alone.stdout)["deployment"]["cheapest"]) > 0, "something is found")
    for ranks in (2, 4):
        many = run([*PLAN, "--json"], ranks)
        require(many.returncode == 0, f"{ranks} ranks: {many.returncode} {many.stderr}")
        require(many.stdout == alone.stdout, f"{ranks} ranks answer otherwise than one")
    shown, table = run(PLAN), run(PLAN, 4)
    require(table.stdout == shown.stdout, f"the table of 4 ranks: {table.stdout} {table.stderr}")
    for line in shown.stderr.splitlines():  # MPI may have something of its own to say
        require(table.stderr.count(line) == 1, f"said once: {line} in {table.stderr}")


def children(of):
    """Processes of shardline below a process."""
    out = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
            if parent == of and os.readlink(f"/proc/{name}/exe") == BINARY:
                with open(f"/proc/{name}/environ", "rb") as f:
                    rank = re.search(rb"OMPI_COMM_WORLD_RANK=([0-9]+)", f.read())
                out.append((int(rank.group(1)), int(name)))
        except (OSError, AttributeError):
            pass
    return [pid for rank, pid in sorted(out)]


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        user, system = f.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def killed():
    """Its part is done by the others, to the same bits; mpirun must be told to go on without a process."""
    longer = [BINARY, "plan", "llama-3.1-70b", "--system", "h200-hgx", "--gpus", "32", "--input", "4K", "--output", "256",
              "--engine", "vllm", "--slo", "ttft p90 2 s, tpot p90 60 ms", "--rate", "20/s", "--requests", "4000",
              "--knob", "max_num_seqs=64,256,1024", "--threads", "1", "--json"]
    before = os.times()
    alone = run(longer)
    after = os.times()
    all_seconds = after.children_user - before.children_user + after.children_system - before.children_system
    process = subprocess.Popen([*MPIRUN, "--enable-recovery", "-np", "4", *longer], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "SHARDLINE_RANK_PATIENCE": "2"})
    # In the middle of its jobs, of which a quarter are its own: before all have come together, MPI itself waits for each of
    # them.
    until = time.monotonic() + 60
    while time.monotonic() < until:
        ranks = children(process.pid)
        if len(ranks) == 4 and processor_seconds(ranks[2]) > all_seconds / 8:
            break
        time.sleep(0.02)
    require(len(ranks) == 4, f"four processes run: {ranks}")
    os.kill(ranks[2], signal.SIGKILL)
    out, errors = process.communicate(timeout=300)
    print("mpirun's exit code after the loss:", process.returncode)
    require(out == alone.stdout, f"a lost rank changes the answer: {process.returncode} {out[:300]} {errors}")
    require("rank 2 was not heard of any more: the others did its part" in errors, f"the loss is said: {errors}")


def other_commands():
    alone = run([BINARY, "list"])
    many = run([BINARY, "list"], 3)
    require(many.stdout == alone.stdout, f"list by 3 ranks: {many.stdout}")
    require("note: of 3 processes one answers: only plan --slo shares its work" in many.stderr, f"{many.stderr}")
    bad = run([w.replace("ttft p90 2 s", "ttft p90 2 kg") for w in PLAN], 3)
    require(bad.returncode == 2 and bad.stderr.count("expected a time such as") == 1, f"one says what is wrong: {bad.returncode} {bad.stderr}")
    # Launchers end all as soon as one has failed: the others leave the slowest the time to say why.
    wrong = [w.replace("ttft p90 2 s", "ttft p90 2 kg") for w in PLAN]
    late = run([*MPIRUN, "-np", "1", "sh", "-c", 'sleep 1; exec "$0" "$@"', *wrong, ":", "-np", "2", *wrong])
    require(late.returncode == 2 and late.stderr.count("expected a time such as") == 1, f"though it is late: {late.returncode} {late.stderr}")


def without_module():
    lacks = run(PLAN, SHARDLINE_MPI="/nowhere/shardline_mpi.so", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0")
    require(lacks.returncode == 2 and "started as 2 processes, and the module for MPI does not load" in lacks.stderr,
            f"{lacks.returncode} {lacks.stderr}")


def wrong_patience():
    for given in ("x", "-5", "0"):
        refused = run(PLAN, SHARDLINE_RANK_PATIENCE=given, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0")
        require(refused.returncode == 2 and f"SHARDLINE_RANK_PATIENCE {given}: expected a whole number" in refused.stderr,
                f"{refused.returncode} {refused.stderr}")


def skip_without_open_mpi():
    """Another MPI has other options, and some containers let no process be started by any."""
    version = subprocess.run([sys.argv[2], "--version"], capture_output=True, text=True).stdout
    started = run(["true"], 2)
    if "Open MPI" not in version and "OpenRTE" not in version or started.returncode != 0:
        print(f"skipped: {sys.argv[2]} is no Open MPI, or starts nothing here: {version} {started.stderr}")
        sys.exit(77)


if __name__ == "__main__":
    skip_without_open_mpi()
    same_bits()
    killed()
    other_commands()
    without_module()
    wrong_patience()
