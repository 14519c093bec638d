"""The class that vLLM loads: KvcConnector (docs/vllm.md)."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.logger import init_logger

from kvc_vllm import lib
from kvc_vllm.metrics import KvcPromMetrics, KvcStats
from kvc_vllm.scheduler import KvcScheduler
from kvc_vllm.worker import KvcMetadata, KvcWorker

logger = init_logger("vllm.kvc")
LEVELS = {0: logger.debug, 1: logger.info, 2: logger.warning}


def _log(level: int, text: str) -> None:
    LEVELS.get(level, logger.error)(
        "kvc: %s%s", "this engine broke a rule: " if level == lib.LOG_PEER_FAULT else "", text)


class KvcConnector(base.KVConnectorBase_V1, base.SupportsHMA):
    """One role of one kvc library; holds no cache logic.

    The public methods of KvcScheduler or KvcWorker carry vLLM's names and become this object's own.
    """

    requires_kv_delivery = False  # a cache: a lost store is a later miss

    def __init__(self, vllm_config: Any, role: base.KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        path = self._kv_transfer_config.kv_connector_extra_config.get("library")
        if not path:
            raise lib.KvcError("kv_connector_extra_config has no 'library' (path of a kvc library)")
        kind = KvcScheduler if role is base.KVConnectorRole.SCHEDULER else KvcWorker
        self.impl = kind(vllm_config, kv_cache_config, lib.Library(path), _log)
        for name in (n for n in vars(kind) if not n.startswith("_")):
            setattr(self, name, getattr(self.impl, name))

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        if isinstance(self._connector_metadata, KvcMetadata):
            self.impl.submit_loads(self._connector_metadata)

    def wait_for_save(self) -> None:
        if isinstance(self._connector_metadata, KvcMetadata):
            self.impl.submit_stores(self._connector_metadata)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads are asynchronous: a request is not scheduled before its load has ended."""

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        """Stores are submitted after the forward."""

    def _of_the_role(self, *args: Any) -> Any:
        raise NotImplementedError("a method of the other role")

    get_num_new_matched_tokens = update_state_after_alloc = build_connector_meta = _of_the_role
    request_finished_all_groups = _of_the_role

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KvcStats:
        return KvcStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, *args: Any) -> KvcPromMetrics:
        return KvcPromMetrics(*args)
