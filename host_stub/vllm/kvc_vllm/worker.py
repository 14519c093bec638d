"""Rank role: submits the plans, reports what ended."""

import ctypes
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.logger import init_logger

from kvc_vllm import layout, lib

logger = init_logger("vllm.kvc.worker")


@dataclass
class KvcMetadata(base.KVConnectorMetadata):
    """One step, scheduler to every worker."""

    plan: bytes = b""
    loads: dict[int, str] = field(default_factory=dict)  # of this plan: job -> request
    failed: list[str] = field(default_factory=list)  # loads that no plan will ever hold
    close: str = ""  # the connector is given up, and why


@dataclass
class KvcWorkerMetadata(base.KVConnectorWorkerMetadata):
    """One step, worker to scheduler."""

    reports: list[bytes]
    failures: list[str]  # one of each worker that closed its handle in this step

    def aggregate(self, other: "KvcWorkerMetadata") -> "KvcWorkerMetadata":
        return KvcWorkerMetadata(self.reports + other.reports, self.failures + other.failures)


@dataclass
class KvcHandshake(base.KVConnectorHandshakeMetadata):
    info: tuple[int, int, int, bytes, bytes]  # lib.rank_info


class KvcWorker:
    """Owns the rank handle. Threads: the worker's."""

    def __init__(self, config: Any, cache: Any, library: lib.Library, log: Any) -> None:
        rank = config.parallel_config.rank % config.parallel_config.world_size
        self._cache, self._layout = cache, layout.Layout(config, cache, rank)
        self._handle = lib.Handle(library, "rank", self._layout.open, self._layout.host_caps, log)
        self._fence = lib.make("fence")
        self._jobs: dict[int, str] = {}  # open loads
        self._failed: set[str] = set()
        self._reports: list[bytes] = []
        self._failures: list[str] = []
        self._gone, self._cuda = "", False
        self._info: KvcHandshake | None = None

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        regions, out = layout.regions(self._layout, self._cache, kv_caches), lib.make("rank_info")
        self._tensors = kv_caches  # the library reads and writes them until close
        self._handle.check(
            "register_regions", ctypes.byref(lib.list_of(regions)), ctypes.byref(out))
        self._info = KvcHandshake(lib.rank_info(out))
        self._cuda = any(r.device_kind == lib.DEVICE_CUDA for r in regions)

    def _submit(self, slot: str, plan: bytes) -> None:
        if self._gone or not plan:
            return
        if self._cuda:
            self._fence.kind = lib.FENCE_CUDA_STREAM
            self._fence.object = torch.cuda.current_stream().cuda_stream
        status = self._handle.call(slot, lib.bytes_of(plan), ctypes.byref(self._fence))
        if status < 0:
            self._give_up(f"{slot} answered {lib.said(status)}: {self._handle.error()}")

    def submit_loads(self, meta: KvcMetadata) -> None:
        self._jobs.update(meta.loads)
        self._failed.update(meta.failed)
        if meta.close:
            self._give_up(meta.close)
        self._submit("submit_loads", meta.plan)

    def submit_stores(self, meta: KvcMetadata) -> None:
        self._submit("submit_stores", meta.plan)

    def _give_up(self, why: str) -> None:
        """Closes the handle; what was being loaded has failed. The engine goes on without kvc."""
        if not self._gone:
            self._gone, self._failures = why, [why]
            logger.error("kvc rank given up: %s", why)
            self._handle.close()

    def get_transfer_results(self, finished_req_ids: set[str]) -> base.KVConnectorTransferResults:
        """Every load of this rank exactly once, failed ones in both sets."""
        out, news = base.KVConnectorTransferResults(), lib.make("progress")
        if not self._gone and (
                status := self._handle.call("progress", ctypes.byref(news))) < 0:
            self._give_up(f"progress answered {lib.said(status)}: {self._handle.error()}")
        if self._gone:
            self._failed.update(self._jobs.values())
            self._jobs.clear()
        else:
            for done in lib.rows_of(news.loads.data, news.loads.count, news.loads.stride):
                if request := self._jobs.pop(done[2], ""):  # else: nobody asked for it
                    (out.finished_recving if done[0] >> 32 == lib.OK else self._failed).add(request)
            if news.report.size:
                self._reports.append(ctypes.string_at(news.report.data, news.report.size))
        out.failed_recving, self._failed = self._failed, set()
        out.finished_recving |= out.failed_recving
        return out

    def build_connector_worker_meta(self) -> KvcWorkerMetadata | None:
        meta = KvcWorkerMetadata(self._reports, self._failures)
        self._reports, self._failures = [], []
        return meta if meta.reports or meta.failures else None

    def get_handshake_metadata(self) -> KvcHandshake | None:
        return self._info

    def shutdown(self) -> None:
        self._gone = self._gone or "shut down"
        self._handle.close()
