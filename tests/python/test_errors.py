"""What is raised, with its places; what ends a call early."""

import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import shardline

LONG = dict(scenario="helix_gb200_1m", exhaustive=True)


def test_bad_input_has_places_and_the_text_of_the_program(folder, program):
    (folder / "bad.yaml").write_text((folder / "small.yaml").read_text().replace("system:", "sistem:"))
    lines = (folder / "bad.yaml").read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "sistem" in text)
    with pytest.raises(shardline.BadInput) as raised:
        shardline.sweep("bad.yaml")
    error = raised.value
    unknown = [d for d in error.diagnostics if "sistem" in d.message]
    assert [(d.file, d.line, d.column, d.key) for d in unknown] == [("bad.yaml", line, 1, "sistem")]
    assert "system" in [d.key for d in error.diagnostics]  # the missing one
    assert "did you mean system?" in unknown[0].details
    assert (error.file, error.line, error.column, error.key) == tuple(
        getattr(error.diagnostics[0], name) for name in ("file", "line", "column", "key")
    )
    ran = program.run("sweep", "bad.yaml")
    assert ran.returncode == 2 and str(error) in ran.stderr and f"bad.yaml:{line}:1" in str(error)


ONE = "tensor:tpa=4,tpf=4,batch=1"


def ask_plan(**given):
    return shardline.plan("llama-3.1-8b", **{**dict(system="h100-hgx", input="8K", output=512), **given})


def ask_serve(**given):
    line = dict(model="llama-3.1-8b", system="h100-hgx", input="8K", output=512, rate=1, plan="tensor")
    return shardline.serve(**{**line, **given})


@pytest.mark.parametrize(
    "ask, text",
    [
        (lambda: shardline.sweep("helix_gb200"), "helix_gb200"),
        (lambda: shardline.sweep("small.yaml", ttl="20"), "ttl 20: expected a time with its unit"),
        (lambda: shardline.sweep("small.yaml", ttl=-1), "expected a positive number"),
        (lambda: shardline.sweep("small.yaml", tokens_per_user=0), "tokens_per_user 0"),
        (lambda: shardline.sweep("small.yaml", engine="vlm"), "vllm"),
        (lambda: shardline.sweep("small.yaml", costs="fitted"), "calibrated or parameters"),
        (lambda: shardline.sweep("rings.yaml"), "asks for another answer"),
        (lambda: shardline.thresholds("small.yaml"), "asks for another answer"),
        (lambda: shardline.simulate("small.yaml", plan="helix:kvp=3"), "kvp"),
        (lambda: shardline.explain("small.yaml", plan="helix:kvp=3"), "kvp"),
        (lambda: shardline.compare("small.yaml", plan="helix:kvp=3"), "expected the texts of two plans"),
        (lambda: shardline.compare("small.yaml", plan=["tensor:tpa=8"]), "expected two"),
        (lambda: shardline.plan("llama-3.1-8b", system="h100-hgx", input="8L"), "8L"),
        (lambda: shardline.plan("llama-3.1-8b", system="h100-hgx", input="8K", ttl="1 ms"), "their length with output"),
        (lambda: shardline.plan("llama3.1-8b", system="h100-hgx", input="8K"), "llama-3.1-8b"),
        (lambda: shardline.plan("llama-3.1-8b", system="h100-hgx", input=0), "input 0: expected 1 to"),
        (lambda: shardline.plan("llama-3.1-8b", system="h100-hgx", input="8K", output=512, rate="5/d"), "300/min"),
        (lambda: shardline.serve(model="llama-3.1-8b", system="h100-hgx", input="8K", output=512), "rate, users"),
        (lambda: shardline.serve(model="llama-3.1-8b", input="8K", output=512, rate=1), "system is missing"),
        (lambda: shardline.serve("small.yaml", rate=1), "plan is required"),
        (lambda: shardline.serve("small.yaml", system="h100-hgx", rate=1), "no system beside it"),
        (lambda: shardline.serve("small.yaml", plan="tensor:tpa=8,tpf=8", rate=1, router="least"), "least_kv"),
        (lambda: shardline.serve("small.yaml", plan="tensor:tpa=8,tpf=8", users=0), "users 0"),
        (lambda: shardline.handoff("served.yaml", prefill=ONE, decode=ONE, at_once=0), "at_once 0: expected 1 to 1000"),
        (lambda: shardline.handoff("served.yaml", prefill=ONE, decode=ONE, tokens=-1), "tokens: expected 0 or more"),
        (lambda: shardline.handoff("served.yaml", prefill="ring", decode=ONE), "ring_pass_kv"),
        (lambda: shardline.sweep("small.yaml", memory="2 MB"), 'allow it: memory "'),
        (lambda: shardline.sweep("small.yaml", memory=2e6), "may use 2 MB"),
        (lambda: shardline.sweep("small.yaml", memory="16"), "found a number without a unit"),
        (lambda: shardline.sweep("small.yaml", memory=0), "expected a positive size"),
        (lambda: shardline.list("modells"), "models"),
        (lambda: ask_plan(gpus=0), "gpus 0: expected 1 to 128"),
        (lambda: ask_plan(gpus=999), "gpus 999: h100-hgx has 128"),
        (lambda: ask_plan(nodes=-1), "nodes -1: expected 1 to 16"),
        (lambda: ask_plan(gpus=3, nodes=1), "gpus 3 and nodes 1, which are 8 GPUs"),
        (lambda: ask_plan(users=0), "users 0: expected 1"),
        (lambda: ask_plan(rate=0), "rate 0: expected"),
        (lambda: ask_plan(rate=1, users=1), "rate and users: "),
        (lambda: ask_plan(rate=1, engine="ideal"), "or leave engine out"),
        (lambda: ask_plan(gpu_hour=-1), "gpu_hour -1: expected a price"),
        (lambda: ask_plan(output=1), "leave output out"),
        (lambda: ask_plan(input="200K"), "any_context lifts that"),
        (lambda: ask_plan(set="memory"), "set:1:1: "),
        (lambda: ask_plan(slo="ttft p99 2 s", rate=1, knob="max_num_seqss=64", engine="vllm"), "knob:1:1: unknown knob"),
        (lambda: ask_plan(users="ten"), "users: expected a whole number, found ten"),
        (lambda: ask_plan(users="1.0001K"), "users: expected a whole number, found 1.0001K"),
        (lambda: ask_plan(gpus="0"), "gpus 0: expected 1 to 128"),
        (lambda: ask_plan(gpus=2**70), "gpus 1180591620717411303424: expected a number of 64 bits"),
        (lambda: shardline.sweep("small.yaml", threads="two"), "threads: expected a whole number, found two"),
        (lambda: shardline.sweep("small.yaml", users="0"), "users: expected a positive number, found 0"),
        (lambda: ask_serve(max_local_prefill=-1), "max_local_prefill -1: expected 0"),
        (lambda: ask_serve(prefill_replicas=3), "prefill_replicas, prefill_knob and max_local_prefill are of"),
        (lambda: ask_serve(engine="ideal"), 'engine="vllm"'),
    ],
)
def test_bad_arguments_are_bad_input(folder, ask, text):
    with pytest.raises(shardline.BadInput) as raised:
        ask()
    assert text in str(raised.value)
    assert isinstance(raised.value, (shardline.Error, ValueError))


@pytest.mark.parametrize(
    "ask, key",
    [
        (lambda: ask_plan(gpus=999), "gpus"),
        (lambda: ask_plan(system="h300-hgx"), "system"),
        (lambda: shardline.plan("llama-3.1-9b", system="h100-hgx", input="8K"), "model"),
        (lambda: ask_plan(engine="vlm"), "engine"),
        (lambda: ask_plan(engine="vllm 0.0.1"), "engine"),
        (lambda: ask_plan(users=0), "users"),
        (lambda: ask_plan(gpu_hour=-1), "gpu_hour"),
        (lambda: shardline.sweep("small.yaml", ttl="20"), "ttl"),
        (lambda: shardline.sweep("small.yaml", tokens_per_user=0), "tokens_per_user"),
        (lambda: shardline.sweep("helix_gb200"), "scenario"),
        (lambda: ask_serve(prefill_replicas=0), "prefill_replicas"),
        (lambda: ask_serve(requests=-1), "requests"),
    ],
)
def test_faults_of_arguments_name_them(folder, ask, key):
    with pytest.raises(shardline.BadInput) as raised:
        ask()
    assert raised.value.key == key, str(raised.value)
    assert raised.value.file == ""


@pytest.mark.parametrize(
    "ask, text",
    [
        (lambda: shardline.sweep("small.yaml", ttl=[1]), 'ttl: expected a time in seconds, or with its unit as "20 ms", found [1]'),
        (lambda: shardline.sweep("small.yaml", threads=2.0), 'threads: expected a whole number, or a text as "1K", found 2.0'),
        (lambda: shardline.sweep("small.yaml", users=1.5), 'users: expected a whole number, or a text as "1K", found 1.5'),
        (lambda: shardline.sweep("small.yaml", all="yes"), "all: expected True or False, found 'yes'"),
        (lambda: shardline.sweep(3), "scenario: expected a name or a path, found 3"),
        (lambda: ask_plan(gpus=2.5), 'gpus: expected a whole number, or a text as "1K", found 2.5'),
        (lambda: ask_plan(gpus=True), 'gpus: expected a whole number, or a text as "1K", found True'),
        (lambda: ask_plan(input=8.5), "input: expected a whole number of tokens, or a text as \"32K\", found 8.5"),
        (lambda: ask_plan(input=None), "input: expected a whole number of tokens"),
        (lambda: ask_plan(tokens_per_user="30"), "tokens_per_user: expected a number, found '30'"),
        (lambda: ask_plan(rate=[]), 'rate: expected requests a second, or by time as "300/min", found []'),
        (lambda: ask_plan(gpu_hour="3"), "gpu_hour: expected a number, found '3'"),
        (lambda: ask_plan(system=3), "system: expected a name or a path, found 3"),
        (lambda: ask_plan(engine=None), "engine: expected a text as \"vllm\", found None"),
        (lambda: ask_plan(set=[3]), "set: expected texts, as ["),
        (lambda: ask_plan(any_gpus="yes"), "any_gpus: expected True or False, found 'yes'"),
        (lambda: ask_plan(memory=[]), "memory: expected a number of bytes"),
        (lambda: ask_plan(progress=3), "progress: expected a function, found 3"),
        (lambda: ask_serve(seed=1.5), 'seed: expected a whole number, or a text as "1K", found 1.5'),
        (lambda: ask_serve(router=None), "router: expected a text, found None"),
        (lambda: shardline.simulate("small.yaml", plan=3), "plan: expected a text, found 3"),
        (lambda: ask_plan(userz=3), "plan() has no argument userz: did you mean users?"),
        (lambda: ask_plan(Users=3), "plan() has no argument Users: its name here is users"),
        (lambda: ask_plan(tokens_per_usr=3), "plan() has no argument tokens_per_usr: did you mean tokens_per_user?"),
        (lambda: ask_plan(zzz=3), "plan() has no argument zzz: expected one of: model, system, input, output, gpus, "),
        (lambda: ask_plan(isl="8K"), "plan() has no argument isl: its name here is input"),
        (lambda: ask_plan(tensor_parallel_size=8), "plan() has no argument tensor_parallel_size: its name here is gpus (of all"),
        (lambda: ask_plan(quantization="fp8"), 'plan() has no argument quantization: its name here is set="precision.weights=fp8" (w'),
        (lambda: ask_serve(max_num_seqs=8), 'serve() has no argument max_num_seqs: its name here is knob="max_num_seqs=64" (of vLLM'),
        (lambda: shardline.simulate("small.yaml", tp=8), 'simulate() has no argument tp: its name here is plan="tensor:tpa=8,tpf=8"'),
        (lambda: shardline.sweep("small.yaml", context=8), 'sweep() has no argument context: its name here is set="context=128K tokens" (t'),
        (lambda: shardline.sweep("small.yaml", tp=8), 'sweep() has no argument tp: its name here is set="gpus=8" (and set="strategies=[tensor]" for'),
        (lambda: shardline.sweep("small.yaml", model="x"), "sweep() has no argument model: expected one of: scenario, "),
        (lambda: shardline.plan("llama-3.1-8b", "h100-hgx"), "plan() takes model alone without its name, others as system='h100-hgx'"),
        (lambda: shardline.list(3), "what: expected a text, found 3"),
    ],
)
def test_arguments_of_a_wrong_type_are_type_errors_that_name_them(folder, ask, text):
    with pytest.raises(TypeError) as raised:
        ask()
    assert str(raised.value).startswith(text) and "\n" not in str(raised.value)


def test_numbers_of_numpy_and_one_text_of_several_are_taken(folder):
    numpy = pytest.importorskip("numpy")
    asked = ask_plan(gpus=numpy.int64(2), ttl=numpy.float32(0.5), any_gpus=numpy.bool_(True), set="device.memory.bandwidth=3 TB/s")
    assert asked.question.gpus == 2 and asked.question.most_ttl_s == 0.5


def test_counts_may_be_texts_as_on_the_command_line(folder):
    asked = ask_plan(gpus="8", users="1K", threads="1").question
    assert (asked.gpus, asked.users) == (8, 1024)
    assert shardline.sweep("small.yaml", users="0.0625K").question.least_users == 64
    served = ask_serve(plan="tensor:tpa=1,tpf=1", rate=None, users="4", requests="0.0625K", replicas="2", seed="2K")
    assert (served.question.users, served.question.requests, served.question.replicas, served.question.seed) == (4, 64, 2, 2048)


@pytest.mark.parametrize("text", ["ten", "1.5", "2e3", "", "1K tokens", "0x10", "-"])
def test_texts_that_are_no_count_are_said_in_the_words_of_the_program(program, text):
    with pytest.raises(shardline.BadInput) as raised:
        ask_plan(users=text)
    assert str(raised.value).splitlines()[0] == f"users: expected a whole number, found {text}"
    if text:
        ran = program.run("plan", "llama-3.1-8b", "--system", "h100-hgx", "--input", "8K", f"--users={text}")
        assert ran.stderr == f"--users: expected a whole number from 1 to 1000000, found {text}\n" and ran.returncode == 2


def test_threads_have_a_limit(folder):
    for threads in (-1, 1025, 100_000):
        with pytest.raises(shardline.BadInput, match="threads"):
            shardline.sweep("small.yaml", threads=threads)


def test_memory_is_of_one_call(folder):
    with pytest.raises(shardline.BadInput):
        shardline.sweep("small.yaml", memory="2 MB")
    assert shardline.sweep("small.yaml", memory="16 GB").met
    assert shardline.sweep("small.yaml").met


def test_memory_is_a_part_of_the_machines_where_nobody_says(folder, monkeypatch):
    assert shardline._shardline.machine_memory() > 1e8
    monkeypatch.setattr(shardline._shardline, "machine_memory", lambda: 2.5e6)
    with pytest.raises(shardline.BadInput, match="may use 2 MB"):
        shardline.sweep("small.yaml")
    assert shardline.sweep("small.yaml", memory=math.inf).met


def test_no_plan_is_an_answer_and_raised_where_that_is_wanted(folder, program):
    result = shardline.sweep("small.yaml", ttl="1 us")
    assert not result.met and program.run("sweep", "small.yaml", "--ttl", "1 us").returncode == 3
    with pytest.raises(shardline.NoPlan):
        result.check()
    nearest = shardline.plan("llama-3.1-8b", system="h100-hgx", gpus=2, input="8K", output=512, ttl="1 ms")
    with pytest.raises(shardline.NoPlan, match="the nearest: TPOT"):
        nearest.check()
    assert shardline.sweep("small.yaml").check().met


def test_cancelled_interrupts():
    began = time.monotonic()
    with pytest.raises(shardline.Interrupted):
        shardline.sweep(**LONG, cancelled=lambda: time.monotonic() > began + 0.2)


def test_what_a_callback_raises_is_raised():
    def progress(done, total):
        assert 0 < done <= total
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        shardline.sweep(**LONG, progress=progress)


def test_progress_is_called_where_it_was_asked():
    threads, seen = set(), []

    def progress(done, total):
        threads.add(threading.get_ident())
        seen.append((done, total))

    with pytest.raises(shardline.Interrupted):
        shardline.sweep(**LONG, progress=progress, cancelled=lambda: len(seen) > 2)
    assert threads == {threading.get_ident()} and len(seen) > 2
    assert all(a <= b for (a, _), (b, _) in zip(seen, seen[1:]))


def test_other_threads_run_meanwhile():
    ticks, done = [], threading.Event()

    def tick():
        while not done.wait(0.005):
            ticks.append(time.monotonic())

    other = threading.Thread(target=tick)
    other.start()
    began = time.monotonic()
    with pytest.raises(shardline.Interrupted):
        shardline.sweep(**LONG, threads=1, cancelled=lambda: time.monotonic() > began + 0.6)
    done.set()
    other.join()
    # Of 120 ticks at most; with the GIL held there would be none.
    assert len([t for t in ticks if t > began]) > 20


def test_two_questions_at_once(folder):
    alone = shardline.sweep("small.yaml").models[0].points
    found = [None, None]

    def ask(i):
        found[i] = shardline.sweep("small.yaml").models[0].points

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [alone, alone]


CTRL_C = """
import time, shardline
told = False
def progress(done, total):
    global told
    if not told: print("begun", flush=True)
    told = True
try:
    shardline.sweep("helix_gb200_1m", exhaustive=True, progress=progress)
except KeyboardInterrupt:
    print("KeyboardInterrupt", time.time())
"""


def plan_of(model, **given):
    return shardline.plan(model, system="h100-hgx", input="8K", output=512, **given)


@pytest.mark.parametrize("ask", [shardline.sweep, plan_of])
def test_a_pipe_that_nobody_writes_to_can_be_left(folder, ask):
    os.mkfifo(folder / "pipe.yaml")
    began = time.monotonic()
    with pytest.raises(shardline.Interrupted):
        ask("pipe.yaml", cancelled=lambda: time.monotonic() > began + 0.1)
    assert time.monotonic() - began < 0.6


def test_ctrl_c_ends_a_long_sweep_within_half_a_second():
    child = subprocess.Popen([sys.executable, "-c", CTRL_C], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    began = time.time()
    child.send_signal(signal.SIGINT)
    words = child.communicate()[0].split()
    assert words[0] == "KeyboardInterrupt" and child.returncode == 0
    assert float(words[1]) - began < 0.5


# Ended by the interpreter while another thread computes: before its end, and in the middle of it.
DAEMON = """
import threading, time, shardline
ask = lambda: shardline.sweep("helix_gb200_1m", exhaustive=True, threads=2)
for _ in range(2):
    threading.Thread(target=ask, daemon=True).start()
time.sleep(%s)
"""


@pytest.mark.parametrize("later", [0, 0.05, 0.3])
def test_the_interpreter_ends_while_others_compute(later):
    ran = subprocess.run([sys.executable, "-c", DAEMON % later], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


# More threads than cores, of several questions at once, with other numbers of them.
MANY = """
import threading, shardline
def ask(threads):
    for _ in range(3):
        shardline.sweep("small.yaml", threads=threads)
all = [threading.Thread(target=ask, args=(n,)) for n in (2, 3, 4, 16, 5, 2)]
for t in all: t.start()
for t in all: t.join()
"""


def test_numbers_of_threads_of_others_are_no_matter(folder):
    ran = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_what_is_shown_of_a_value_has_an_end():
    with pytest.raises(TypeError) as raised:
        ask_plan(any_gpus="x" * 1_000_000)
    assert "(1000002 characters)" in str(raised.value) and len(str(raised.value)) < 400
    with pytest.raises(shardline.BadInput, match="set: more than 10000 texts"):
        ask_plan(set=("a=1" for _ in iter(int, 1)))


def test_a_question_without_its_subject_says_what_is_missing():
    for ask in (shardline.sweep, shardline.thresholds, shardline.partition, shardline.conversation):
        with pytest.raises(shardline.BadInput, match="^scenario is missing: a shipped one, a file, or scenario_text") as raised:
            ask()
        assert raised.value.key == "scenario"
    for name, model, system in (("model", "", "h100-hgx"), ("system", "llama-3.1-8b", "")):
        with pytest.raises(shardline.BadInput, match=f"^{name} is missing") as raised:
            shardline.plan(model, system=system, input="8K")
        assert raised.value.key == name


def test_compare_of_one_plan_says_how_many_it_takes(folder):
    with pytest.raises(shardline.BadInput, match="^plan: expected two, found 1") as raised:
        shardline.compare("small.yaml", plan=["helix:kvp=8,tpa=8,tpf=64,batch=4"])
    assert raised.value.key == "plan"


def test_no_plan_says_times_as_the_program_does():
    for ttl, excess in (("7 ms", r"\+\d+ %"), ("1 us", r"[\d,]+ times as much")):
        with pytest.raises(shardline.NoPlan, match=rf"the nearest: TPOT \d[\d.]* ms \({excess}\)"):
            ask_plan(ttl=ttl, gpus=1).check()


def test_a_row_by_what_is_no_index():
    rows = ask_plan(gpus=2).plans
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        rows[1.0]
    assert rows[True] == rows[1]


def test_memory_that_is_not_there_is_said():
    script = """if True:
        import math, resource
        import shardline
        held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + 200 * 2**20,) * 2)
        try:
            shardline.serve(model="llama-3.1-8b", system="h100-hgx", gpus=1, input=1024, output=64, users=1000000,
                            requests=3000000, memory=math.inf)
        except shardline.BadInput as e:
            print(e)
        print(shardline.plan("llama-3.1-8b", system="h100-hgx", gpus=1, input=1024, threads=1).met)
    """
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert said.stdout == "out of memory: ask for less at once, or run it with more\nTrue\n", said.stderr
