"""The same requests through vLLM's own SimpleCPU scheduler and through a kvc library."""

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from connectors import connector_kind
from engine import IN_PROCESS, Answer, Engine, kvc_transfer, prompt
from models import make_model
from peer import peer_transfer

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not IN_PROCESS, reason="looks into both schedulers"),
]
REQUESTS = 24
PLENTY = 1000  # blocks
POINTS = 0.005


def workload(model: str) -> list[list[int]]:
    """Conversations that grow turn by turn below two system prompts, interleaved."""
    source = random.Random(5)
    turn = 150 if model == "llama" else 400
    systems = [prompt(260, 100), prompt(130, 101)]
    talks: list[list[int]] = []
    out = []
    for i in range(REQUESTS):
        if len(talks) < 6 or source.random() < 0.15:
            talks.append(list(systems[source.randrange(2)]))
        talk = talks[source.randrange(max(0, len(talks) - 6), len(talks))]
        if len(talk) + turn > 1900:
            talk[:] = systems[0]
        talk += prompt(turn + source.randrange(40), 1000 + i)
        out.append(list(talk))
    return out


@dataclass
class Run:
    answers: list[Answer]
    hits: list[int]  # external tokens per request
    tokens: int

    @property
    def rate(self) -> float:
        return sum(self.hits) / self.tokens


def run_all(engine: Engine, prompts: list[list[int]]) -> Run:
    answers, hits = [], []
    for p in prompts:
        engine.reset_device()
        answer, local, external = engine.hits(p, 4)
        assert local == 0
        answers.append(answer)
        hits.append(external)
    engine.drain()
    return Run(answers, hits, sum(map(len, prompts)))


def kvc_run(model: str, library: str, folder: Path, blocks: int, prompts: list[list[int]]
            ) -> tuple[Run, int]:
    """The run, and the blocks that the tier holds in the end."""
    path = folder / f"{blocks}.toml"
    kind = connector_kind(library)
    path.write_text(f'[connector]\nkind = "{kind}"\n\n[host]\nblocks = {blocks}\n')
    engine = Engine(model, kvc_transfer(library, str(path)))
    try:
        run = run_all(engine, prompts)
        return run, engine.stats()["host_published_now"]
    finally:
        engine.close()


def peer_runs(model: str, sizes: list[int], prompts: list[list[int]]) -> list[Run]:
    """One engine; its host pool is made smaller by taking blocks out of it."""
    engine = Engine(model, peer_transfer(256 << 20))
    try:
        runs = []
        for blocks in sizes:
            assert engine.llm.reset_prefix_cache(reset_connector=True)
            pool = engine.connector.scheduler_manager.cpu_block_pool
            assert pool.get_num_free_blocks() >= blocks
            taken = pool.get_new_blocks(pool.get_num_free_blocks() - blocks)
            runs.append(run_all(engine, prompts))
            pool.free_blocks(taken)
            engine.reset_device()
        return runs
    finally:
        engine.close()


@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_hits_are_at_least_those_of_simple_cpu(
        name: str, models: Path, library: str, tmp_path: Path) -> None:
    model = make_model(name, models)
    prompts = workload(name)
    plenty, used = kvc_run(model, library, tmp_path, PLENTY, prompts)
    assert used < PLENTY // 2  # nothing was evicted
    sizes = [PLENTY, used // 2, used // 4]
    peers = peer_runs(model, sizes, prompts)
    ours = [plenty] + [kvc_run(model, library, tmp_path, n, prompts)[0] for n in sizes[1:]]
    for blocks, mine, peer in zip(sizes, ours, peers, strict=True):
        print(f"{name}: {blocks} blocks: kvc {mine.rate:.2%}, SimpleCPU {peer.rate:.2%}")
    assert [i for i in range(REQUESTS) if ours[0].hits[i] < peers[0].hits[i]] == []
    for mine, peer in zip(ours, peers, strict=True):
        assert mine.rate >= peer.rate - POINTS
        for a, b in zip(mine.answers, peer.answers, strict=True):
            assert a.tokens == b.tokens
