"""The class that vLLM loads: KvcConnector (docs/vllm.md)."""

from collections.abc import Iterable
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.logger import init_logger
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvc_vllm import lib
from kvc_vllm.metrics import Interval, KvcPromMetrics, KvcStats
from kvc_vllm.scheduler import KvcScheduler
from kvc_vllm.worker import KvcMetadata, KvcWorker

logger = init_logger("vllm.kvc")
LEVELS = {0: logger.debug, 1: logger.info, 2: logger.warning}


def _log(level: int, text: str) -> None:
    LEVELS.get(level, logger.error)("kvc: %s%s", "" if level != lib.PEER_FAULT else
                                    "this engine broke a rule: ", text)


class KvcConnector(KVConnectorBase_V1, SupportsHMA):
    """Forwards to the scheduler or the rank role of one kvc library; holds no cache logic."""

    _cache_hit_source = CacheHitSource.HOST
    requires_kv_delivery = False  # a cache: a lost store is a later miss

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        path = self._kv_transfer_config.kv_connector_extra_config.get("library")
        if not path:
            raise lib.KvcError("kv_connector_extra_config has no 'library' (path of a kvc library)")
        library = lib.Library(path)
        self._interval = Interval()
        self.sched: Any = None
        self.rank: Any = None
        if role is KVConnectorRole.SCHEDULER:
            self.sched = KvcScheduler(vllm_config, kv_cache_config, library, _log)
        else:
            self.rank = KvcWorker(vllm_config, kv_cache_config, library, _log)

    # ---- worker

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self.rank.register(kv_caches)

    def get_handshake_metadata(self) -> Any:
        return self.rank.info

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        if isinstance(self._connector_metadata, KvcMetadata):
            self.rank.loads(self._connector_metadata)

    def wait_for_layer_load(self, layer_name: str) -> None:
        return

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kw: Any) -> None:
        return

    def wait_for_save(self) -> None:
        if isinstance(self._connector_metadata, KvcMetadata):
            self.rank.stores(self._connector_metadata)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        return self.rank.results()

    def build_connector_worker_meta(self) -> Any:
        return self.rank.take_meta()

    # ---- scheduler

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        self.sched.bind(kv_cache_manager)

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], Any]) -> None:
        self.sched.set_ranks([m.info for m in metadata.values()])

    def get_num_new_matched_tokens(
            self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self.sched.lookup(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self.sched.allocated(request, blocks, num_external_tokens)

    def get_external_cache_hit_sources(
            self, request: Any, num_external_tokens: int) -> dict[CacheHitSource, int]:
        st = self.sched.live.get(request.request_id)
        return dict(st.media) if st is not None else {}

    def build_connector_meta(self, scheduler_output: Any) -> KvcMetadata:
        return self.sched.build(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        self.sched.update(connector_output)

    def register_finished_partial_tail(
            self, request: Any, block_ids: Any, partial_tail_offloads: Any) -> bool:
        st = self.sched.live.get(request.request_id)
        if st is not None:
            st.tails = partial_tail_offloads
        return False

    def request_finished_all_groups(
            self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
        self.sched.ended(request, any(block_ids))
        return False, None  # what is still copied is held by reference

    def has_pending_block_frees(self) -> bool:
        return self.sched.frees()

    def has_pending_push_work(self) -> bool:
        return self.sched.pending()

    def take_events(self) -> Iterable[Any]:
        return self.sched.events()

    def get_kv_connector_stats(self) -> KvcStats | None:
        return self._interval.take(self.sched.stats) if self.sched is not None else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KvcStats:
        return KvcStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, *args: Any) -> KvcPromMetrics:
        return KvcPromMetrics(*args)

    def reset_cache(self) -> bool:
        return self.sched.reset()

    # ---- both

    def shutdown(self) -> None:
        for role in (self.sched, self.rank):
            if role is not None:
                role.close()
