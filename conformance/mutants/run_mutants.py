"""Builds the tree of make_mutants.py once and runs the tests with every mutant switched on.

A mutant is killed by the first test that fails, crashes, takes ten times the processor time that it
takes without it, or hangs. Beside other work nothing is killed for being slow.
Only tests that pass the mutant's place are run, the quickest first. What nothing kills is listed;
known.json says of a survivor why it changes nothing (equivalent), by file, text and operator: such
a mutant is not run. What was measured and judged is kept in --out: a run that was stopped goes on
where it was, and --again judges anew what had survived (after tests were added).

Usage: run_mutants.py --build build/dev --out build/mutants [--count N] [--seed S] [--jobs N]
                      [--built] [--again] [--only 1,2,...]
Exit: 0 if at least 95 % of the mutants that are not known as equivalent are killed, else 1.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
LABELS = {"unit", "property", "sim", "abi", "vectors"}
# Tests of other folders, of texts and headers, and of other connectors: they cannot see a mutant.
BLIND = re.compile(
    r"tidy|corpus|docs_|header_matrix|layout|frozen|doc_tables|traces|mooncake|svg|kvc_bad|probe")
GOAL = 0.95


@dataclasses.dataclass
class Test:
    name: str
    command: list[str]
    folder: str
    seconds: float = 0.0
    passes: set[int] = dataclasses.field(default_factory=set)

    def bounds(self) -> None:
        """In the child: its processor time; and a mutant that takes all memory is what the kernel
        ends. A limit of addresses would not do: engines map hundreds of GiB that they do not
        touch."""
        cpu_s = int(20 + 10 * self.seconds) if self.seconds else resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")

    def run(self, environment: dict[str, str], limit_s: float) -> str:
        """Empty if it succeeded, else how it ended."""
        process = subprocess.Popen(
            self.command, cwd=self.folder or None, env={**os.environ, **environment},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=self.bounds,
            start_new_session=True)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return "time"
        finally:  # and the cases that it runs in processes of their own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return "" if code == 0 else f"exit {code}"


def build(given) -> None:
    """Leaves out, one round after another, the mutants that do not compile; the list is kept."""
    broken_file = given.out / f"broken-{given.count}-{given.seed}.txt"
    without = set(broken_file.read_text().split()) if broken_file.exists() else set()
    for _ in range(6):
        subprocess.run([sys.executable, HERE / "make_mutants.py", "--build", given.build, "--out",
                        given.out, "--count", str(given.count), "--seed", str(given.seed),
                        "--without", ",".join(sorted(without))], check=True)
        tree = given.out / "tree"
        subprocess.run(["cmake", "-S", tree, "-B", given.out / "build", "-G", "Ninja",
                        "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                        "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1", "-DKVC_WERROR=OFF",
                        f"-DCMAKE_CXX_FLAGS=-w -include {tree.resolve()}/mutant_switch.h"],
                       check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run(["cmake", "--build", given.out / "build", "--parallel",
                               str(given.jobs), "--", "-k", "0"], capture_output=True, text=True)
        if done.returncode == 0:
            return
        broken = set(re.findall(r"mutants::on\((\d+)\)", done.stdout))
        errors = [line for line in done.stdout.splitlines() if " error: " in line]
        print("\n".join(errors[:20]))
        if not broken - without:
            sys.exit("the tree does not build, and no mutant is in the errors")
        without |= broken
        broken_file.write_text(" ".join(sorted(without)))
    sys.exit("mutants that do not compile remain")


def tests_of(given) -> list[Test]:
    listed = subprocess.run(["ctest", "--test-dir", given.out / "build", "--show-only=json-v1"],
                            capture_output=True, text=True, check=True)
    tests = []
    for entry in json.loads(listed.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        if not LABELS & set(properties.get("LABELS", [])) or BLIND.search(entry["name"]):
            continue
        tests.append(Test(entry["name"], entry["command"],
                          properties.get("WORKING_DIRECTORY", "")))
    return tests


def first_run(test: Test, out: pathlib.Path) -> None:
    """Without a mutant: must succeed; how long it takes, which places it passes."""
    seen = out / f"seen-{test.name}"
    seen.write_bytes(bytes(4096))
    start = time.monotonic()
    how = test.run({"KVC_MUTANTS_SEEN": str(seen.resolve())}, 1200)
    if how:
        sys.exit(f"{test.name} fails without a mutant: {how}")
    test.seconds = time.monotonic() - start
    test.passes = {i for i, byte in enumerate(seen.read_bytes()) if byte}


def judge(mutant: dict, tests: list[Test]) -> dict:
    number = mutant["mutant"]
    for test in sorted((t for t in tests if number in t.passes), key=lambda t: t.seconds):
        how = test.run({"KVC_MUTANT": str(number)}, 120 + 30 * test.seconds)
        if how:
            return {**mutant, "killed_by": test.name, "how": how}
    return {**mutant, "killed_by": None, "reached": any(number in t.passes for t in tests)}


class Kept:
    """What earlier runs over this build found, a line of JSON each."""

    def __init__(self, out: pathlib.Path, again: bool) -> None:
        self.out, self.tests_file, self.results_file = (
            out, out / "tests.jsonl", out / "judged.jsonl")
        self.tests = {t["name"]: t for t in self._lines(self.tests_file)}
        self.results = {key(r): r for r in self._lines(self.results_file)
                        if r["killed_by"] is not None or not again}
        self._lock = threading.Lock()

    @staticmethod
    def _lines(path: pathlib.Path) -> list[dict]:
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _keep(self, path: pathlib.Path, value: dict) -> None:
        with self._lock, path.open("a") as file:
            file.write(json.dumps(value) + "\n")

    def measure(self, test: Test) -> None:
        known = self.tests.get(test.name)
        if known is not None:
            test.seconds, test.passes = known["seconds"], set(known["passes"])
            return
        first_run(test, self.out)
        self._keep(self.tests_file, {"name": test.name, "seconds": test.seconds,
                                     "passes": sorted(test.passes)})

    def judged(self, mutant: dict, tests: list[Test], known: bool) -> dict:
        if known:
            return {**mutant, "killed_by": None, "reached": True}
        result = self.results.get(key(mutant))
        if result is None:
            result = judge(mutant, tests)
            self._keep(self.results_file, result)
        return result


def key(mutant: dict) -> tuple[str, ...]:
    return tuple(mutant[k] for k in ("file", "text", "operator", "before", "after"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--built", action="store_true", help="as built by an earlier run")
    parser.add_argument("--again", action="store_true", help="judge anew what had survived")
    parser.add_argument("--only", default="", help="numbers of mutants, by commas")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if not given.built:
        build(given)
    tests = tests_of(given)
    mutants = json.loads((given.out / "mutants.json").read_text())["mutants"]
    if given.only:
        mutants = [m for m in mutants if str(m["mutant"]) in given.only.split(",")]
    known = {key(k): k["why"] for k in json.loads((HERE / "known.json").read_text())}
    kept = Kept(given.out, given.again)
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(lambda t: kept.measure(t), tests))
        print(f"{len(tests)} tests, {sum(t.seconds for t in tests):.0f} s together", flush=True)
        results = []
        for result in pool.map(lambda m: kept.judged(m, tests, key(m) in known), mutants):
            results.append(result)
            if result["killed_by"] is None and key(result) not in known:
                print(f"survived: {result['mutant']} {result['file']}:{result['line']} "
                      f"{result['operator']}: {result['before']!r} -> {result['after']!r}"
                      + ("" if result["reached"] else " (no test passes it)"), flush=True)
    survivors = [r for r in results if r["killed_by"] is None]
    equivalent = [r for r in survivors if key(r) in known]
    judged = len(results) - len(equivalent)
    killed = len(results) - len(survivors)
    (given.out / "results.json").write_text(json.dumps(results, indent=1))
    print(f"{len(results)} mutants, {killed} killed, {len(equivalent)} known as equivalent, "
          f"{len(survivors) - len(equivalent)} survived: {killed / max(judged, 1):.1%} of {judged}")
    sys.exit(0 if killed >= GOAL * judged else 1)


if __name__ == "__main__":
    main()
