"""vLLM's own SimpleCPU offload connector on the CPU platform: its scheduler unchanged, its worker
replaced by copies in host memory (the original wants CUDA streams)."""

from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector import (
    SimpleCPUOffloadConnector,
)
from vllm.v1.simple_kv_offload.metadata import (
    SimpleCPUOffloadMetadata,
    SimpleCPUOffloadWorkerMetadata,
)

from kvc_vllm import layout


class HostWorker:
    """Copies at once; reports in the same step."""

    def __init__(self, config: Any, cache: Any, bytes_per_rank: int) -> None:
        self._config, self._cache, self._bytes = config, cache, bytes_per_rank
        self._meta = SimpleCPUOffloadMetadata()
        self._stored: dict[int, int] = {}

    def register_kv_caches(self, tensors: dict[str, torch.Tensor]) -> None:
        everything = layout.Layout(self._config, self._cache, 0)
        self._device = []
        for region in layout.regions(everything, self._cache, tensors):
            name = next(iter(tensors))
            storage = tensors[name].untyped_storage()
            raw = torch.empty(0, dtype=torch.int8).set_(storage)
            first = region.base - storage.data_ptr()
            shape = (self._cache.num_blocks, region.block_bytes)
            self._device.append(raw.as_strided(shape, (region.block_stride_bytes, 1), first))
        whole = self._cache.kv_cache_tensors[0].size
        blocks = max(1, self._cache.num_blocks * self._bytes // whole)
        self._host = [torch.zeros((blocks, d.shape[1]), dtype=torch.int8) for d in self._device]

    def bind_connector_metadata(self, metadata: SimpleCPUOffloadMetadata) -> None:
        self._meta = metadata

    def clear_connector_metadata(self) -> None:
        self._meta = SimpleCPUOffloadMetadata()

    def start_load_kv(self) -> None:
        for device, host in zip(self._device, self._host, strict=True):
            device[self._meta.load_gpu_blocks] = host[self._meta.load_cpu_blocks]

    def wait_for_save(self) -> None:
        for device, host in zip(self._device, self._host, strict=True):
            host[self._meta.store_cpu_blocks] = device[self._meta.store_gpu_blocks]
        if self._meta.store_event >= 0:
            self._stored[self._meta.store_event] = 1

    def get_finished(self, finished: set[str]) -> tuple[None, set[str] | None]:
        event = self._meta.load_event
        return None, set(self._meta.load_event_to_reqs.get(event, ())) if event >= 0 else None

    def build_connector_worker_meta(self) -> SimpleCPUOffloadWorkerMetadata | None:
        stored, self._stored = self._stored, {}
        return SimpleCPUOffloadWorkerMetadata(stored) if stored else None

    def handle_preemptions(self, metadata: SimpleCPUOffloadMetadata) -> None:
        return


class PeerConnector(SimpleCPUOffloadConnector):
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        if role is KVConnectorRole.WORKER:
            extra = self._kv_transfer_config.kv_connector_extra_config
            self.worker_handler = HostWorker(
                vllm_config, kv_cache_config, int(extra["cpu_bytes_to_use"]))


def peer_transfer(bytes_to_use: int) -> dict[str, Any]:
    return {
        "kv_connector": "PeerConnector",
        "kv_connector_module_path": "peer",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": bytes_to_use},
    }
