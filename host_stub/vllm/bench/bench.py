"""Scheduler-side cost of KV connectors in vLLM: the same requests through vLLM's real scheduler
with SimpleCPU, Offloading, and a kvc library (through the adapter, and the library alone, timed by
stopwatch.c between the two).

Nothing is computed: forwards are answered by hand, the peers' copies are reported at once, kvc's
rank copies real but tiny blocks. ./dev bench-vllm prints a table with goals and writes
build/bench/vllm.json; its status is 1 when a goal is missed.
"""

import argparse
import ctypes
import functools
import gc
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from vllm import SamplingParams
from vllm.config import KVTransferConfig, set_current_vllm_config
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingWorkerMetadata,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1 import kv_cache_interface as specs
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

from kvc_vllm import lib
from kvc_vllm.connector import KvcConnector

PAGE = 256  # bytes of a block
BATCH = 8192
LENGTHS = (192, 1024, 1500, 8192, 32768, 131072)
OFTEN = 10  # stores, lookups and loads of a length in a round: short calls vary more
SELDOM = 4  # the same from LONG tokens on, stores once
LONG = 32768
STEPS = 24  # per round
WARM = 2  # rounds that do not count
LEVEL = 0.9  # no row below is level, however much its rounds differ
CHANCE = 0.01  # of a row being called slower although it is not
LAYOUTS = {"full 16": (16, 0, None), "hybrid 784/8": (784, 784, 8), "hybrid 1536/128":
           (1536, 1536, 128)}
EVERYBODY = ("SimpleCPU", "Offloading", "kvc")


def cache_config(layout: str, blocks: int) -> specs.KVCacheConfig:
    block, state, _ = LAYOUTS[layout]
    elements = PAGE // 2 // block or 1
    full = specs.FullAttentionSpec(
        block_size=block, num_kv_heads=1, head_size=elements, dtype=torch.int8)
    page = full.page_size_bytes
    groups = [specs.KVCacheGroupSpec(["attention"], full)]
    tensors = [specs.KVCacheTensor(page * blocks, ["attention"], page * blocks, page)]
    for i in range(3 if state else 0):
        spec = specs.MambaSpec(block_size=state, shapes=((8,),), dtypes=(torch.int8,),
                               page_size_padded=page, mamba_cache_mode="align")
        groups.append(specs.KVCacheGroupSpec([f"state{i}"], spec))
        tensors.append(specs.KVCacheTensor(page * blocks, [f"state{i}"], page * blocks, page))
    return specs.KVCacheConfig(blocks, tensors, groups, prefix_cache_retention_interval=0)


class Clock:
    """Durations in ns by name; what runs outside a scenario is not kept."""

    def __init__(self, stopwatch: Any) -> None:
        self.scenario, self._stopwatch, self.found = "", stopwatch, 0
        self.times: dict[str, list[int]] = defaultdict(list)
        self.sums: dict[str, list[int]] = defaultdict(list)  # of each run of a scenario
        self.runs: dict[str, int] = defaultdict(int)

    def wrap(self, name: str, call: Any) -> Any:
        slot, stopwatch = SLOTS.get(name), self._stopwatch

        def timed(*args: Any) -> Any:
            if slot is not None:
                stopwatch[slot] = 0
            start = time.perf_counter_ns()
            out = call(*args)
            took = time.perf_counter_ns() - start
            if name == "lookup":
                self.found = out[0] or 0
            if self.scenario:
                self._add(f"{self.scenario}/{name}", took)
                if slot is not None and stopwatch[slot]:
                    self._add(f"{self.scenario}/C {name}", stopwatch[slot])
            return out
        return timed

    def _add(self, name: str, took: int) -> None:
        self.times[name].append(took)
        self.sums[name] += [0] * (self.runs[self.scenario] - len(self.sums[name]))
        self.sums[name][-1] += took

    @contextmanager
    def of(self, scenario: str) -> Iterator[None]:
        self.scenario = scenario
        self.runs[scenario] += 1
        try:
            yield
        finally:
            self.scenario = ""

    def take(self) -> dict[str, float]:
        """Medians in us since the last take. "all calls": the sum of a request's; completions too
        are those of a request together: one ends in three calls what another ends in one."""
        out: dict[str, float] = defaultdict(float)
        for name, times in self.times.items():
            scenario, call = name.rsplit("/", 1)
            kind, _, size = scenario.partition(" ")
            if kind in ("store", "load", "evict"):
                if not call.startswith("C "):
                    out[f"{scenario}/all calls"] += sum(times) / 1000 / self.runs[scenario]
                if call.endswith("complete"):
                    out[name] = statistics.median(self.sums[name]) / 1000
                    continue
                # Calls of idle steps in between are no part of it: the longest are those with
                # blocks.
                steps = max(1, int(size or 14000) // BATCH) if kind != "load" else 1
                times = sorted(times)[-steps * self.runs[scenario]:]
            out[name] = statistics.median(times) / 1000
        self.times.clear()
        self.sums.clear()
        self.runs.clear()
        return out


METHODS = {"on_new_request": "begin", "get_num_new_matched_tokens": "lookup",
           "update_state_after_alloc": "alloc", "build_connector_meta": "build",
           "update_connector_output": "complete", "request_finished_all_groups": "end"}
SLOTS = {"lookup": 0, "alloc": 1, "build": 2, "complete": 3}  # of stopwatch.c


class World:
    """vLLM's scheduler with one connector, and a worker that answers by hand."""

    def __init__(self, who: str, layout: str, library: Path, folder: Path, device: int, host: int,
                 length: int, running: int = 256) -> None:
        stopwatch = (ctypes.c_uint64 * 4).in_dll(ctypes.CDLL(str(library)), "kvc_stopwatch_ns")
        self.who, self.clock = who, Clock(stopwatch)
        self.layout, self.cache = layout, cache_config(layout, device)
        page = self.cache.kv_cache_tensors[0].block_stride
        toml = folder / "bench.toml"
        toml.write_text(  # the peers make no events either
            f'[connector]\nkind = "simple_cpu"\nevent_ring = 0\n[host]\nblocks = {host}\n')
        kinds = {
            "SimpleCPU": ("SimpleCPUOffloadConnector", None, {"cpu_bytes_to_use": page * host}),
            "Offloading": ("OffloadingConnector", None, {"cpu_bytes_to_use": page * host}),
            "kvc": ("KvcConnector", "kvc_vllm.connector",
                    {"library": str(library), "config": str(toml)}),
        }
        name, module, extra = kinds[who]
        self.config = EngineArgs(
            model=str(folder), skip_tokenizer_init=True,
            max_model_len=length + LAYOUTS[layout][0] + 1024,  # of a load, one block longer
            max_num_batched_tokens=BATCH, max_num_seqs=max(running, 16), enable_prefix_caching=True,
            block_size=16, async_scheduling=False,
            kv_transfer_config=KVTransferConfig(
                kv_connector=name, kv_connector_module_path=module, kv_role="kv_both",
                kv_load_failure_policy="recompute", kv_connector_extra_config=extra),
        ).create_engine_config()
        block, _, unit = LAYOUTS[layout]
        self.config.cache_config.block_size = block
        self.config.cache_config.prefix_match_unit = unit
        self.config.cache_config.mamba_cache_mode = "align" if unit else "none"
        self.config.cache_config.num_gpu_blocks = device
        with set_current_vllm_config(self.config):
            scheduler_block, self.unit = resolve_kv_cache_block_sizes(self.cache, self.config)
            self.rank = None
            if who == "kvc":
                self.rank = KvcConnector(self.config, KVConnectorRole.WORKER, self.cache)
                memory = torch.zeros(page * device, dtype=torch.int8)
                self.rank.register_kv_caches(
                    {n: memory for t in self.cache.kv_cache_tensors for n in t.layers})
            self.scheduler = Scheduler(
                self.config, self.cache,
                SimpleNamespace(should_advance=lambda r: False, accept_tokens=lambda *a: True),
                block_size=scheduler_block, hash_block_size=self.unit, log_stats=False)
        self.connector = self.scheduler.connector
        if self.rank is not None:
            self.connector.set_xfer_handshake_metadata_pp_aware(
                {(0, 0): self.rank.get_handshake_metadata()})
        for method, short in METHODS.items():
            setattr(self.connector, method, self.clock.wrap(short, getattr(self.connector, method)))
        algorithm = get_hash_fn_by_name("sha256")
        init_none_hash(algorithm)
        self.hasher = get_request_block_hasher(self.unit, algorithm)
        self.requests = 0

    def request(self, tokens: list[int], output: int = 1) -> Request:
        self.requests += 1
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        params.update_from_generation_config({}, None)
        return Request(f"r{self.requests}", tokens, params, None, block_hasher=self.hasher)

    def _answer(self, meta: Any) -> KVConnectorOutput:
        """What the worker of this connector would report, its copies done."""
        if self.who == "kvc":
            self.rank.bind_connector_metadata(meta)
            self.rank.start_load_kv(None)
            self.rank.wait_for_save()
            worker = self.rank.impl
            # Not one long wait: it would put this thread to sleep before the call that is timed,
            # and the peers' threads never sleep.
            while worker._handle.call("wait", 0, 0, 0) == lib.LATER:
                pass
            out = self.rank.get_transfer_results(set())
            return KVConnectorOutput(
                finished_recving=out.finished_recving, failed_recving=out.failed_recving,
                kv_connector_worker_meta=self.rank.build_connector_worker_meta())
        if self.who == "SimpleCPU":
            loaded = set(meta.load_event_to_reqs.get(meta.load_event, ())) if (
                meta.load_event >= 0) else set()
            stored = {meta.store_event: 1} if meta.store_event >= 0 else {}
            return KVConnectorOutput(
                finished_recving=loaded,
                kv_connector_worker_meta=SimpleCPUOffloadWorkerMetadata(stored))
        done = OffloadingWorkerMetadata()
        for job in (*meta.load_jobs, *meta.store_jobs):
            done.mark_completed(job)
        return KVConnectorOutput(
            finished_recving={j.req_id for j in meta.load_jobs.values()},
            kv_connector_worker_meta=done)

    def step(self) -> int:
        """One step; the scheduled tokens."""
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        sampled = []
        for name in names:
            r = self.scheduler.requests[name]
            sampled.append([7] if r.num_computed_tokens >= r.num_tokens else [])
        self.scheduler.update_from_output(output, ModelRunnerOutput(
            req_ids=names, req_id_to_index={n: i for i, n in enumerate(names)},
            sampled_token_ids=sampled, kv_connector_output=self._answer(
                output.kv_connector_metadata)))
        return output.total_num_scheduled_tokens

    def drain(self) -> None:
        idle = 0
        while self.scheduler.has_requests():
            idle = 0 if self.step() else idle + 1
            assert idle < 1000, f"{self.who}, {self.layout}: requests wait and nothing is scheduled"

    def run(self, tokens: list[int], scenario: str = "") -> None:
        """One request from beginning to end, and what it leaves behind."""
        with self.clock.of(scenario):
            self.scheduler.add_request(self.request(tokens))
            self.drain()

    def empty_device(self, connector: bool = False) -> None:
        self.drain()
        assert self.scheduler.reset_prefix_cache(reset_connector=connector)

    def lookups(self, tokens: list[int], scenario: str, times: int) -> int:
        """Each by a request of its own; the hit."""
        hit = 0
        for _ in range(times):
            r = self.request(tokens)
            self.scheduler.requests[r.request_id] = r
            with self.clock.of(scenario):
                self.connector.on_new_request(r)
                hit = self.connector.get_num_new_matched_tokens(r, 0)[0] or 0
            del self.scheduler.requests[r.request_id]
            self.connector.request_finished_all_groups(
                r, tuple([] for _ in self.cache.kv_cache_groups))
        return hit

    def close(self) -> None:
        self.connector.shutdown()
        if self.rank is not None:
            self.rank.shutdown()


@functools.lru_cache(64)
def tokens_of(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(500), k=length)


def requests_of(world: World, length: int, hits: dict[str, int]) -> None:
    """One round: stores, lookups and loads at this length."""
    block, times = LAYOUTS[world.layout][0], OFTEN if length < LONG else SELDOM
    main, other = tokens_of(length, length), tokens_of(length, length + 1)
    for i in range(times if length < LONG else 1):
        world.empty_device(connector=i > 0)
        world.run(main, f"store {length}")
    world.empty_device()
    if length >= LENGTHS[1]:
        prompts = {"full": [*main, 1], "half": main[: length // 2] + other[length // 2:],
                   "miss": other}
        for name, prompt in prompts.items():
            hits[f"{name} {length}"] = world.lookups(prompt, f"lookup {name} {length}", times)
    for i in range(times):
        world.run([*main, *tokens_of(block, 2 + i)], f"load {length}")
        hits[f"load {length}"] = world.clock.found
        world.empty_device()


def decode(worlds: dict[str, World], running: int, stagger: int) -> None:
    """All requests decode; with a stagger some of them get a block in every step."""
    for world in worlds.values():
        for i in range(running):
            world.scheduler.add_request(
                world.request(tokens_of(200 + i % stagger, i), 1 + STEPS * 99))
        while any(r.is_prefill_chunk for r in world.scheduler.running) or len(
                world.scheduler.running) < running:
            world.step()


Rounds = dict[str, list[dict[str, float]]]  # who -> medians of each round


def rounds_of(worlds: dict[str, World], rounds: int, play: Any) -> Rounds:
    """Every round of one beside that of the others: a busy machine is busy for all."""
    out: Rounds = {who: [] for who in worlds}
    gc.collect()
    gc.freeze()
    for i in range(WARM + rounds):
        for who, world in worlds.items():
            play(world)
            taken = world.clock.take()
            if i >= WARM:
                out[who].append(taken)
    for world in worlds.values():
        world.close()
    gc.unfreeze()
    return out


def measure(layout: str, library: Path, folder: Path, lengths: tuple[int, ...], rounds: int
            ) -> tuple[Rounds, dict[str, Any]]:
    block, most = LAYOUTS[layout][0], max(lengths)
    found: Rounds = {who: [{} for _ in range(rounds)] for who in EVERYBODY}

    def add(more: Rounds) -> None:
        for who, medians in more.items():
            for old, new in zip(found[who], medians, strict=True):
                old.update(new)

    def worlds(*sizes: int) -> dict[str, World]:
        return {who: World(who, layout, library, folder, *sizes) for who in EVERYBODY}

    hits: dict[str, Any] = {who: {} for who in EVERYBODY}
    per_request = (most // block + 8) * (4 if LAYOUTS[layout][1] else 1)
    for length in lengths:
        def one(world: World, length: int = length) -> None:
            requests_of(world, length, hits[world.who])
            world.empty_device(connector=True)
        size = min(per_request, (length // block + 8) * 4)
        add(rounds_of(worlds(3 * size, 4 * size, length), rounds, one))
    if layout == "full 16":
        for running, stagger, name in ((64, 1, "step 64"), (256, 1, "step 256"),
                                       (256, 16, "mixed step 256")):
            decoding = worlds(32768, 65536, 2048, running)
            decode(decoding, running, stagger)

            def steps(world: World, name: str = name) -> None:
                with world.clock.of(name):
                    for _ in range(STEPS):
                        world.step()
            add(rounds_of(decoding, rounds, steps))

        def evict(world: World) -> None:
            world.requests += 1
            world.run(tokens_of(14000, 50 + world.requests), "evict")
            world.empty_device()
        add(rounds_of(worlds(4096, 1024, 16384), rounds, evict))
    return found, hits


def goal_of(layout: str, scenario: str, call: str) -> float | None:
    """How many times faster than SimpleCPU it must be (docs/vllm.md)."""
    kind, _, size = scenario.partition(" ")
    blocks = int(size) // LAYOUTS[layout][0] if size.isdigit() else 0
    if call.startswith("C "):
        if layout != "full 16":
            return None
        goals = {"lookup full 32768/C lookup": 100, "lookup full 131072/C lookup": 100,
                 "step 256/C build": 10}
        if blocks >= 2048 and (kind, call) in (("load", "C alloc"), ("store", "C complete")):
            return 10
        return goals.get(f"{scenario}/{call}")
    if layout == "full 16" and (scenario, call) == ("lookup full 1500", "lookup"):
        return 5
    if kind == "load" and call == "alloc":
        return 5 if blocks >= 2048 else 1 / 1.5 if blocks <= 12 else 1
    if call == "all calls" or (kind == "store" and call == "build"):
        return None
    return 1 / 1.5 if scenario.startswith("lookup miss") else 1


SHOWN = {"lookup": ("lookup",), "load": ("alloc", "complete", "all calls"),
         "store": ("build", "complete", "all calls"), "step": ("build",), "mixed": ("build",),
         "evict": ("build", "complete", "all calls")}


def chance_of(slower: int, rounds: int) -> float:
    """Of two that are equally fast: that one is slower in so many rounds (sign test)."""
    return sum(math.comb(rounds, n) for n in range(slower, rounds + 1)) / 2 ** rounds


def met(ratios: list[float], goal: float | None) -> bool:
    """A multiple of the peer's speed is met by the median. "Not slower" is missed when we are
    behind in so many rounds that it is no chance: an equal one would have a median below 1 in
    every second run."""
    if goal is None or statistics.median(ratios) >= goal:
        return True
    slower = sum(r < 1 for r in ratios)
    return (goal == 1 and statistics.median(ratios) >= LEVEL
            and chance_of(slower, len(ratios)) > CHANCE)


def rows_of(found: Rounds, layout: str, hits: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per scenario and call: medians over rounds, ratios within rounds. A length of
    which SimpleCPU finds nothing again has no goal: the work is not the same."""
    names = [n for n in found["kvc"][0] if n.rsplit("/", 1)[1].removeprefix("C ") in SHOWN[
        n.split()[0].split("/")[0]]]
    out = []
    for name in names:
        scenario, call = name.rsplit("/", 1)
        theirs = f"{scenario}/{call.removeprefix('C ')}"
        us = {who: statistics.median(r[name if who == "kvc" else theirs] for r in found[who])
              for who in EVERYBODY}
        ratios = [peer[theirs] / mine[name] for peer, mine in zip(
            found["SimpleCPU"], found["kvc"], strict=True)]
        hit = hits["SimpleCPU"].get(scenario.replace("store", "load"), 1)
        goal = goal_of(layout, scenario, call) if hit else None
        out.append({"layout": layout, "scenario": scenario, "call": call, "us": us,
                    "ratio": statistics.median(ratios), "ratios": ratios, "goal": goal,
                    "slower": sum(r < 1 for r in ratios), "met": met(ratios, goal)})
    return out


def note_of(row: dict[str, Any]) -> str:
    if row["met"] and (row["goal"] is None or row["ratio"] >= row["goal"]):
        return ""
    of = f"slower in {row['slower']} of {len(row['ratios'])} rounds"
    return f"  level: {of}" if row["met"] else f"  MISSED: {of}" if row["goal"] == 1 else "  MISSED"


def print_rows(rows: list[dict[str, Any]], layout: str) -> None:
    print(f"\n{layout:34}" + "".join(f"{w:>12}" for w in (*EVERYBODY, "ratio", "goal")))
    for row in rows:
        goal = "-" if row["goal"] is None else f">= {row['goal']:.3g}"
        print(f"{row['scenario'] + ' ' + row['call']:34}"
              + "".join(f"{row['us'][w]:12.1f}" for w in EVERYBODY)
              + f"{row['ratio']:12.2f}{goal:>12}{note_of(row)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--stopwatch", required=True, type=Path, help="built from stopwatch.c")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--rounds", type=int, default=11)
    args, began = parser.parse_args(), time.monotonic()
    lengths = tuple(int(n) for n in args.lengths.split(",") if n)
    rows: list[dict[str, Any]] = []
    hits: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["KVC_STOPWATCH_OF"] = args.library
        folder.joinpath("config.json").write_text(json.dumps({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512,
            "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
            "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64,
            "max_position_embeddings": 262144, "torch_dtype": "float32"}))
        for layout in args.layouts.split(","):
            found, hits[layout] = measure(layout, args.stopwatch, folder, lengths, args.rounds)
            new = rows_of(found, layout, hits[layout])
            print_rows(new, layout)
            rows += new
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"rows": rows, "hits": hits}, indent=1))
    missed = sum(not r["met"] for r in rows)
    goals = sum(r["goal"] is not None for r in rows)
    print(f"\n{goals - missed} of {goals} goals met in {time.monotonic() - began:.0f} s; "
          f"load of the machine {os.getloadavg()[0]:.1f}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
