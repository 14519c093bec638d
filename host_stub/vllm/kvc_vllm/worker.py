"""Rank role: submits the plans, reports what ended."""

import ctypes
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
)
from vllm.logger import init_logger

from kvc_vllm import layout, lib

logger = init_logger("vllm.kvc.worker")
FENCE_NONE, FENCE_CUDA_STREAM = 0, 2


@dataclass
class KvcMetadata(KVConnectorMetadata):
    """One step, scheduler to every worker."""

    plan: bytes = b""
    loads: dict[int, str] = field(default_factory=dict)  # of this plan: job -> request
    failed: list[str] = field(default_factory=list)  # loads that no plan will ever hold
    close: str = ""  # the connector is given up, and why


@dataclass
class KvcWorkerMetadata(KVConnectorWorkerMetadata):
    """One step, worker to scheduler."""

    reports: list[bytes]
    failures: list[str] = field(default_factory=list)
    closed: int = 0  # workers that closed their handle

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "KvcWorkerMetadata":
        assert isinstance(other, KvcWorkerMetadata)
        return KvcWorkerMetadata(self.reports + other.reports, self.failures + other.failures,
                                 self.closed + other.closed)


@dataclass
class KvcHandshake(KVConnectorHandshakeMetadata):
    """What register_regions of one rank returned."""

    info: dict[str, Any]


class KvcWorker:
    """Owns the rank handle. Threads: the worker's."""

    def __init__(self, config: Any, cache: Any, library: lib.Library, log: Any) -> None:
        rank = config.parallel_config.rank % (config.parallel_config.world_size or 1)
        self._cache = cache
        self._layout = layout.Layout(config, cache, rank)
        self._handle = lib.Handle(library, "rank", self._layout.open, self._layout.host_caps, log)
        self._lib = library
        self._fence = lib.make("fence")
        self._jobs: dict[int, str] = {}
        self._failed: set[str] = set()
        self._meta: KvcWorkerMetadata | None = None
        self._gone = ""
        self._told = False
        self._cuda = False
        self.info: KvcHandshake | None = None

    def register(self, tensors: dict[str, torch.Tensor]) -> None:
        regions = layout.regions(self._layout, self._cache, tensors)
        out = lib.make("rank_info")
        given = lib.list_of(regions, len(regions))
        status = self._lib.register_regions(
            self._handle.address, ctypes.addressof(given), ctypes.addressof(out))
        self._handle.check("register_regions", status)
        self.info = KvcHandshake(layout.rank_info(out))
        self._cuda = any(r.device_kind == 1 for r in regions)

    def _submit(self, slot: str, plan: bytes) -> None:
        if self._gone or not plan:
            return
        if self._cuda:
            self._fence.kind = FENCE_CUDA_STREAM
            self._fence.object = torch.cuda.current_stream().cuda_stream
        status = getattr(self._lib, slot)(
            self._handle.address, lib.bytes_of(plan), ctypes.addressof(self._fence))
        if status < 0:
            self._give_up(f"{slot} answered {status}: {self._handle.error()}")

    def loads(self, meta: KvcMetadata) -> None:
        self._jobs.update(meta.loads)
        self._failed.update(meta.failed)
        if meta.close:
            self._give_up(meta.close)
        self._submit("submit_loads", meta.plan)

    def stores(self, meta: KvcMetadata) -> None:
        self._submit("submit_stores", meta.plan)

    def _give_up(self, why: str) -> None:
        """Closes the handle; what was being loaded has failed. The engine goes on without kvc."""
        if self._gone:
            return
        self._gone = why
        logger.error("kvc rank given up: %s", why)
        self._handle.close()

    def results(self) -> KVConnectorTransferResults:
        """Every load of this rank exactly once, failed ones in both sets."""
        out = KVConnectorTransferResults()
        reports: list[bytes] = []
        if not self._gone:
            news = lib.make("progress")
            status = self._lib.progress(self._handle.address, ctypes.addressof(news))
            if status < 0:
                self._give_up(f"progress answered {status}: {self._handle.error()}")
            else:
                for done in lib.elements("load_done", news.loads):
                    request = self._jobs.pop(done.job, None)
                    if request is None:
                        continue
                    out.finished_recving.add(request)
                    if done.status != lib.OK:
                        self._failed.add(request)
                if news.report.size:
                    reports.append(ctypes.string_at(news.report.data, news.report.size))
        if self._gone:
            self._failed.update(self._jobs.values())
            self._jobs.clear()
        out.finished_recving |= self._failed
        out.failed_recving, self._failed = self._failed, set()
        closed = bool(self._gone) and not self._told
        self._told |= closed
        self._meta = None
        if reports or closed:
            self._meta = KvcWorkerMetadata(reports, [self._gone] if closed else [], int(closed))
        return out

    def take_meta(self) -> KvcWorkerMetadata | None:
        meta, self._meta = self._meta, None
        return meta

    def close(self) -> None:
        self._gone = self._gone or "shut down"
        self._handle.close()
