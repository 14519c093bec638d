"""Scheduler-side cost of KV connectors in vLLM: the same requests through vLLM's real scheduler
with SimpleCPU, Offloading, and a kvc library (the C calls alone, and through the adapter).

Nothing is computed: forwards are answered by hand, the peers' copies are reported at once, kvc's
rank copies real but tiny blocks. ./dev bench-vllm prints a table and writes build/bench/vllm.json.
"""

import argparse
import gc
import json
import random
import statistics
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

from kvc_vllm.connector import KvcConnector

PAGE = 256  # bytes of a block
BATCH = 8192
LENGTHS = (1024, 1500, 8192, 32768, 131072)
LOADS = 4  # per length
LAYOUTS = {"full 16": (16, 0, None), "hybrid 784/8": (784, 784, 8), "hybrid 1536/128":
           (1536, 1536, 128)}
PEERS = ("SimpleCPU", "Offloading")


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

    def __init__(self) -> None:
        self.scenario = ""
        self.times: dict[str, list[int]] = defaultdict(list)

    def wrap(self, name: str, call: Any) -> Any:
        def timed(*args: Any) -> Any:
            start = time.perf_counter_ns()
            out = call(*args)
            if self.scenario:
                self.times[f"{self.scenario}/{name}"].append(time.perf_counter_ns() - start)
            return out
        return timed

    @contextmanager
    def of(self, scenario: str) -> Iterator[None]:
        self.scenario = scenario
        try:
            yield
        finally:
            self.scenario = ""


METHODS = {"on_new_request": "begin", "get_num_new_matched_tokens": "lookup",
           "update_state_after_alloc": "alloc", "build_connector_meta": "build",
           "update_connector_output": "complete"}


class World:
    """vLLM's scheduler with one connector, and a worker that answers by hand."""

    def __init__(self, who: str, layout: str, library: str, folder: Path, device: int, host: int,
                 length: int, running: int = 256) -> None:
        self.who, self.clock = who, Clock()
        self.cache = cache_config(layout, device)
        page = self.cache.kv_cache_tensors[0].block_stride
        toml = folder / "bench.toml"
        toml.write_text(f'[connector]\nkind = "simple_cpu"\n[host]\nblocks = {host}\n')
        kinds = {
            "SimpleCPU": ("SimpleCPUOffloadConnector", None, {"cpu_bytes_to_use": page * host}),
            "Offloading": ("OffloadingConnector", None, {"cpu_bytes_to_use": page * host}),
            "kvc": ("KvcConnector", "kvc_vllm.connector",
                    {"library": library, "config": str(toml)}),
        }
        name, module, extra = kinds[who]
        self.config = EngineArgs(
            model=str(folder), skip_tokenizer_init=True, max_model_len=length + 1024,
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
            impl = self.connector.impl
            impl._lookup = self.clock.wrap("C lookup", impl._lookup)
            impl._alloc = self.clock.wrap("C alloc", impl._alloc)
            plain = impl.handle.call
            calls = {"build_store_jobs": self.clock.wrap("C build", plain),
                     "complete": self.clock.wrap("C complete", plain)}
            impl.handle.call = lambda slot, *a: calls.get(slot, plain)(slot, *a)
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
            worker._handle.call("wait", 0, 0, 10**10)
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
        while self.scheduler.has_requests():
            self.step()

    def run(self, tokens: list[int], scenario: str = "") -> None:
        """One request from beginning to end, and what it leaves behind."""
        with self.clock.of(scenario):
            self.scheduler.add_request(self.request(tokens))
            self.drain()

    def empty_device(self) -> None:
        self.drain()
        assert self.scheduler.reset_prefix_cache()

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
        gc.collect()


def tokens_of(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(500), k=length)


def measure(who: str, layout: str, library: str, folder: Path, lengths: tuple[int, ...]
            ) -> dict[str, Any]:
    """Medians in microseconds."""
    block = LAYOUTS[layout][0]
    longest = max(lengths)
    per_request = (longest // block + 8) * len(LAYOUTS)
    world = World(who, layout, library, folder, 3 * per_request, 6 * per_request, longest)
    hits = {}
    for length in lengths:
        main, other = tokens_of(length, length), tokens_of(length, length + 1)
        world.run(main, f"store {length}")
        world.empty_device()
        prompts = {"full": [*main, 1], "half": main[: length // 2] + other[length // 2:],
                   "miss": other}
        for name, prompt in prompts.items():
            hits[f"{name} {length}"] = world.lookups(
                prompt, f"lookup {name} {length}", 40 if length < 32768 else 12)
        for i in range(LOADS):
            world.run([*main, 2 + i], f"load {length}")
            world.empty_device()
    found = summary(world)
    world.close()
    for running in (64, 256) if layout == "full 16" else ():
        small = World(who, layout, library, folder, 16384, 32768, 1024, running)
        for i in range(running):
            small.scheduler.add_request(small.request(tokens_of(200, i), 200))
        while any(r.is_prefill_chunk for r in small.scheduler.running) or len(
                small.scheduler.running) < running:
            small.step()
        with small.clock.of(f"step {running}"):
            for _ in range(60):
                small.step()
        found |= summary(small)
        small.close()
    if layout == "full 16":
        tight = World(who, layout, library, folder, 4096, 1024, 16384)
        for i in range(4):
            tight.run(tokens_of(14000, 50 + i))
        for i in range(3):
            tight.run(tokens_of(14000, 60 + i), "evict")
        found |= summary(tight)
        tight.close()
    return {"median_us": found, "hits": hits}


def summary(world: World) -> dict[str, float]:
    out = {}
    for name, times in world.clock.times.items():
        kind, _, size = name.rsplit("/", 1)[0].partition(" ")
        if kind in ("store", "load", "evict"):
            # Calls of idle steps in between are no part of it: the longest are those with blocks.
            many = {"load": LOADS, "evict": 6}.get(kind) or max(1, int(size) // BATCH)
            times = sorted(times)[-many:]
        out[name] = round(statistics.median(times) / 1000, 2)
    return out


def table(results: dict[str, dict[str, Any]], layout: str) -> str:
    mine = results["kvc"]["median_us"]
    names = [n for n in mine if "/C " not in n]
    lines = [f"{layout:28} " + "".join(f"{w:>12}" for w in (*PEERS, "kvc", "kvc C call"))]
    for name in names:
        scenario, call = name.rsplit("/", 1)
        if (scenario.split()[0], call) not in {
                ("lookup", "begin"), ("lookup", "lookup"), ("load", "alloc"),
                ("load", "complete"), ("store", "build"), ("store", "complete"),
                ("step", "build"), ("evict", "build")}:
            continue
        cells = [results[p]["median_us"].get(name) for p in PEERS if p in results]
        cells += [mine[name], mine.get(f"{scenario}/C {call}")]
        lines.append(f"{scenario + ' ' + call:28} " + "".join(
            f"{c:12.1f}" if c is not None else f"{'-':>12}" for c in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    args = parser.parse_args()
    lengths = tuple(int(n) for n in args.lengths.split(","))
    everything: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.joinpath("config.json").write_text(json.dumps({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512,
            "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
            "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64,
            "max_position_embeddings": 262144, "torch_dtype": "float32"}))
        for layout in args.layouts.split(","):
            results = {who: measure(who, layout, args.library, folder, lengths)
                       for who in (*PEERS, "kvc")}
            everything[layout] = results
            print(table(results, layout), flush=True)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
