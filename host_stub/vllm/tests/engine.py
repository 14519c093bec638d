"""A vLLM engine for tests: token prompts in; tokens, log-probabilities and external hits out."""

import ctypes
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import REGISTRY
from vllm import LLM, SamplingParams
from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.kv_cache_interface import is_full_attention_spec

from faults import Faults
from kvc_vllm import lib
from models import VOCABULARY
from watch import Hung, limit

FENCE_COUNTER = 3
START_S, ANSWER_S = 600, 120  # a busy machine has needed 230 s to start an engine, 2 s to answer
MODE = "VLLM_ENABLE_V1_MULTIPROCESSING"
IN_PROCESS = os.environ.get(MODE, "1") == "0"


def prompt(tokens: int, seed: int = 1) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(VOCABULARY) for _ in range(tokens)]


@dataclass
class Answer:
    tokens: list[int]
    logprobs: list[float]  # of the chosen tokens
    likely: list[dict[int, float]]  # the most likely tokens at each place

    def difference(self, other: "Answer") -> float:
        """Largest difference of log-probabilities; infinite for other tokens."""
        if self.tokens != other.tokens:
            return float("inf")
        return max(abs(a - b) for a, b in zip(self.logprobs, other.logprobs, strict=True))

    def assert_same_but_for_near_ties(self, other: "Answer", tolerance: float) -> None:
        """For runs in other batches or chunks: numbers differ, and so may the choice between tokens
        that are equally likely; what follows such a choice is another text."""
        for at, (mine, theirs) in enumerate(zip(self.tokens, other.tokens, strict=True)):
            if mine != theirs:
                for run, chosen, rival in ((self, mine, theirs), (other, theirs, mine)):
                    gap = run.likely[at][chosen] - run.likely[at].get(rival, -1e9)
                    assert gap <= 2 * tolerance, f"token {at}: {mine} or {theirs}, {gap} apart"
                return
            assert abs(self.logprobs[at] - other.logprobs[at]) <= tolerance, f"token {at}"


def kvc_transfer(library: str, config: str, **more: Any) -> dict[str, Any]:
    """--kv-transfer-config of docs/vllm.md."""
    return {
        "kv_connector": "KvcConnector",
        "kv_connector_module_path": "kvc_vllm.connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"library": library, "config": config},
        **more,
    }


def scrub(worker: Any) -> None:
    """Runs in the worker: what is loaded afterwards came from the connector alone."""
    for cache in worker.model_runner.kv_caches:
        cache.untyped_storage().fill_(0)


def arm(_worker: Any, library: str, point: str, countdown: int) -> None:
    """Runs in the worker's process."""
    Faults(library).arm(point, countdown)


def tripped(_worker: Any, library: str) -> bool:
    """Whether the armed point failed; nothing is armed any more."""
    faults = Faults(library)
    out = faults.tripped()
    faults.clear()
    return out


class Engine:
    """One LLM; close() ends it and what it started. Without connector always in this process.

    A call that gets no answer ends the engine's processes and raises Hung; `hung` says so then.
    """

    def __init__(self, model: str, transfer: dict[str, Any] | None, **options: Any) -> None:
        self.in_process = IN_PROCESS or transfer is None
        self.hung = False
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(MODE, "0" if self.in_process else "1")
            with limit(START_S, "start of an engine"):
                self._start(model, transfer, options)

    def _start(self, model: str, transfer: dict[str, Any] | None, options: dict[str, Any]) -> None:
        if "qwen3_5" in model:
            options = {"mamba_cache_mode": "align", "prefix_match_unit": 32, **options}
        self.model = model
        self.added = 0
        self.llm = LLM(
            model=model,
            kv_transfer_config=transfer,
            **{
                "skip_tokenizer_init": True,
                "enforce_eager": True,
                "dtype": "bfloat16" if "qwen3_5" in model else "float32",
                "kv_cache_memory_bytes": 64 << 20,
                "max_model_len": 2048,
                "max_num_seqs": 8,
                "disable_log_stats": False,
                "enable_prefix_caching": True,
                **options,
            },
        )

    @property
    def core(self) -> Any:
        """The engine core; in-process mode only."""
        return self.llm.llm_engine.engine_core.engine_core

    def ask(self, call: Callable[..., Any], *given: Any, seconds: float = ANSWER_S, **named: Any
            ) -> Any:
        """What the call answers."""
        try:
            with limit(seconds, call.__name__):
                return call(*given, **named)
        except Hung:
            self.hung = True
            raise

    def run(self, prompts: list[list[int]], output: int = 8) -> list[Answer]:
        params = SamplingParams(
            temperature=0.0, max_tokens=output, logprobs=5, ignore_eos=True, detokenize=False
        )
        results = self.ask(
            self.llm.generate, [{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
        answers = []
        for r in results:
            out = r.outputs[0]
            chosen = [
                step[t].logprob for t, step in zip(out.token_ids, out.logprobs, strict=True)
            ]
            likely = [{t: p.logprob for t, p in step.items()} for step in out.logprobs]
            answers.append(Answer(list(out.token_ids), chosen, likely))
        return answers

    def one(self, tokens: list[int], output: int = 8) -> Answer:
        return self.run([tokens], output)[0]

    def metric(self, name: str) -> float:
        return sum(m.value for m in self.llm.get_metrics() if m.name == name)

    def external(self) -> int:
        return int(self.metric("vllm:external_prefix_cache_hits"))

    def local(self) -> int:
        return int(self.metric("vllm:prefix_cache_hits"))

    def hits(self, tokens: list[int], output: int = 8) -> tuple[Answer, int, int]:
        """The answer, device hit tokens, external hit tokens."""
        local, external = self.local(), self.external()
        answer = self.one(tokens, output)
        return answer, self.local() - local, self.external() - external

    def drain(self) -> None:
        """Steps until no copy holds a device block any more."""
        if not self.in_process:
            return
        deadline = time.monotonic() + 120
        while self.core.scheduler.has_requests():
            self.core.step_fn()
            assert time.monotonic() < deadline, "copies did not end within 120 s"

    def reset_device(self) -> None:
        """Empties the device's prefix cache; the connector keeps its tier."""
        self._reset()
        self.in_workers(scrub)

    def reset_connector(self) -> None:
        self._reset(reset_connector=True)

    def _reset(self, **options: bool) -> None:
        self.drain()
        self.step_until(
            lambda: self.ask(self.llm.reset_prefix_cache, **options), "cache was reset")

    def step_until(self, done: Callable[[], bool], what: str) -> None:
        """Steps, by requests that are too short to be stored, in which copies end."""
        deadline = time.monotonic() + 120
        while not done():
            assert time.monotonic() < deadline, f"not within 120 s: {what}"
            self.one(prompt(8), 1)

    def in_workers(self, function: Callable[..., Any], *given: Any, seconds: float = ANSWER_S
                   ) -> list[Any]:
        """What function(worker, *given) returns in each worker's process."""
        return self.ask(self.llm.collective_rpc, function, args=given, seconds=seconds)

    def arm(self, library: str, point: str, countdown: int = 0) -> None:
        """The library fails at this fault point, in the process that runs it."""
        self.in_workers(arm, library, point, countdown)

    def tripped(self, library: str) -> bool:
        return all(self.in_workers(tripped, library))

    def close(self) -> None:
        llm = self.__dict__.pop("llm", None)  # closed already: an engine that hung
        if llm is not None:
            self.ask(llm.llm_engine.engine_core.shutdown)

    # ---- in-process mode only

    @property
    def connector(self) -> Any:
        return self.core.scheduler.connector

    @property
    def worker(self) -> Any:
        return get_kv_transfer_group()

    def step(self) -> None:
        self.core.step_fn()

    def add(self, tokens: list[int], output: int = 8) -> str:
        """A request of the core alone: nobody waits for its output."""
        self.added += 1
        name = f"added-{self.added}"
        params = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True)
        request = EngineCoreRequest(
            request_id=name, prompt_token_ids=tokens, mm_features=None, sampling_params=params,
            pooling_params=None, arrival_time=time.time(), lora_request=None, cache_salt=None,
            data_parallel_rank=None)
        self.core.add_request(*self.core.preprocess_add_request(request))
        return name

    def abort(self, name: str) -> None:
        self.core.abort_requests([name])

    def status(self, name: str) -> str | None:
        request = self.core.scheduler.requests.get(name)
        return request.status.name if request is not None else None

    def check_quiet(self) -> None:
        """No block, hold, lease or offer is left over."""
        self.drain()
        assert self.blocks_in_use() == 0
        sched = self.connector.impl
        assert not sched.held and not sched.loads and not sched.live and not sched.gone
        pending = lib.make("pending")
        sched.handle.call("has_pending", ctypes.byref(pending))
        assert (pending.load_jobs, pending.store_jobs, pending.held_blocks) == (0, 0, 0)
        stats = lib.make("boundary_stats")
        sched.handle.call("boundary_stats", ctypes.byref(stats))
        for row in (stats.handoffs, stats.all_offers):
            counts = {n: getattr(row, n) for n, _ in row._fields_}
            assert counts.pop("published") == sum(counts.values())
            assert (counts["pending"], counts["dropped_bad_offer"]) == (0, 0), counts

    @contextmanager
    def events(self) -> Iterator[list[Any]]:
        """The KV events that are published meanwhile."""
        publisher, seen = self.core.scheduler.kv_event_publisher, []
        plain = publisher.publish
        publisher.publish = lambda batch: seen.extend(batch.events)
        try:
            yield seen
        finally:
            publisher.publish = plain

    def groups(self) -> int:
        return len(self.core.scheduler.kv_cache_config.kv_cache_groups)

    def full_group(self) -> int:
        groups = self.core.scheduler.kv_cache_config.kv_cache_groups
        return next(i for i, g in enumerate(groups) if is_full_attention_spec(g.kv_cache_spec))

    def blocks_in_use(self) -> int:
        pool = self.core.scheduler.kv_cache_manager.block_pool
        return pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()

    def publish_numbers(self) -> None:
        """The next step reports the library's numbers."""
        self.connector.impl._interval._due = 0.0

    @staticmethod
    def counter(name: str, outcome: str = "") -> float:
        """Sum over the labels, or of those with this outcome."""
        return sum(
            s.value for m in REGISTRY.collect() for s in m.samples
            if s.name == name and (not outcome or s.labels.get("outcome") == outcome))

    def stats(self) -> dict[str, int]:
        """Numbers of the library, labels behind the name."""
        return {name + labels: value for name, labels, value in self.connector.impl._stats()}

    @contextmanager
    def loads_undone(self) -> Iterator[None]:
        """Every load is reported, and its bytes are taken away again."""
        worker = self.worker
        plain = worker.get_transfer_results
        caches = self.core.model_executor.driver_worker.model_runner.kv_caches

        def results(finished: set[str]) -> Any:
            out = plain(finished)
            if out.finished_recving:
                for cache in caches:
                    cache.untyped_storage().fill_(0)
            return out

        worker.get_transfer_results = results
        try:
            yield
        finally:
            worker.get_transfer_results = plain

    @contextmanager
    def loads_stuck(self) -> Iterator[None]:
        """The copies of loads wait until the end of this context; those of stores do not."""
        worker, reached = self.worker.impl, ctypes.c_uint64(0)
        plain, fence = worker._submit, worker._fence

        def submit(slot: str, plan: bytes) -> None:
            loads = slot == "submit_loads"
            fence.kind, fence.value = (FENCE_COUNTER if loads else 0), 1
            fence.counter = ctypes.addressof(reached) if loads else None
            plain(slot, plan)

        worker._submit = submit
        worker.reached = reached  # the library may read it until close
        try:
            yield
        finally:
            reached.value = 1
            worker._submit = plain
            fence.kind, fence.counter = 0, None

    @contextmanager
    def results_withheld(self) -> Iterator[None]:
        """No load comes to an end for the engine."""
        worker = self.worker
        plain = worker.get_transfer_results
        worker.get_transfer_results = lambda finished: KVConnectorTransferResults()
        try:
            yield
        finally:
            worker.get_transfer_results = plain

    @contextmanager
    def starved_when_decoding(self, requests: int) -> Iterator[None]:
        """Takes all free blocks away once so many requests decode, until one is preempted."""
        scheduler = self.core.scheduler
        pool, plain = scheduler.kv_cache_manager.block_pool, scheduler.schedule
        before, taken, done = self.preemptions(), [], False

        def schedule(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            running = scheduler.running
            if not done and (taken or (len(running) == requests and not any(
                    r.is_prefill_chunk for r in running))):  # again: windows give blocks back
                taken.extend(pool.get_new_blocks(pool.get_num_free_blocks()))
            out = plain(*args, **kwargs)
            if taken and out.preempted_req_ids:
                pool.free_blocks(taken)
                taken.clear()
                done = True
            return out

        scheduler.schedule = schedule
        try:
            yield
        finally:
            scheduler.schedule = plain
            pool.free_blocks(taken)
        assert done and self.preemptions() > before

    def preemptions(self) -> float:
        return self.metric("vllm:num_preemptions")

    def sources(self) -> dict[str, int]:
        """External hit tokens by source, as vLLM counts them."""
        found: dict[str, int] = {}
        for m in self.llm.get_metrics():
            if m.name == "vllm:prompt_tokens_cached_by_source" and m.value:
                source = m.labels["source"]
                found[source] = found.get(source, 0) + int(m.value)
        found.pop("device", None)
        return found
