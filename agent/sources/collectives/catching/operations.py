"""What each method of ``ProcessGroup`` does, and where its arguments say with what.

Rules of this file: no torch, no state. Arguments stand where ``torch.distributed`` puts them.
"""

from __future__ import annotations

from typing import NamedTuple


class Operation(NamedTuple):
    """One kind of collective or message.

    Attributes:
        op: What the column `op` says.
        method: The method of ``ProcessGroup``.
        tensors: The place of the tensors among its arguments; None where there are none.
        root: Whether its options name a root.
        peer: The place of the other rank; None where there is none.
        kernel: The operator of the dispatcher by which C++ calls it; empty for none.
        group: The place of the group among the operator's arguments.
        root_at: The place of the root among them.
        peer_at: The place of the other rank among them.
        reduction_at: The place of the reduction among them.
    """

    op: str
    method: str
    tensors: int | None = 0
    root: bool = False
    peer: int | None = None
    kernel: str = ""
    group: int = 1
    root_at: int | None = None
    peer_at: int | None = None
    reduction_at: int | None = None


OPERATIONS = (
    Operation("all_reduce", "allreduce", kernel="allreduce_", reduction_at=2),
    Operation("all_reduce", "allreduce_coalesced", kernel="allreduce_coalesced_", reduction_at=2),
    Operation("broadcast", "broadcast", root=True, kernel="broadcast_", root_at=2),
    Operation("reduce", "reduce", root=True),
    Operation("all_gather", "allgather", 1),
    Operation("all_gather", "allgather_coalesced", 1),
    Operation("all_gather", "_allgather_base", 1, kernel="_allgather_base_", group=2),
    Operation("all_gather", "all_gather_single", 1),
    Operation(
        "all_gather",
        "allgather_into_tensor_coalesced",
        1,
        kernel="allgather_into_tensor_coalesced_",
        group=2,
    ),
    Operation("all_gather", "all_gather_single_coalesced", 1),
    Operation("reduce_scatter", "reduce_scatter", 1),
    Operation(
        "reduce_scatter",
        "_reduce_scatter_base",
        1,
        kernel="_reduce_scatter_base_",
        group=2,
        reduction_at=3,
    ),
    Operation("reduce_scatter", "reduce_scatter_single", 1),
    Operation(
        "reduce_scatter",
        "reduce_scatter_tensor_coalesced",
        1,
        kernel="reduce_scatter_tensor_coalesced_",
        group=2,
        reduction_at=3,
    ),
    Operation("reduce_scatter", "reduce_scatter_single_coalesced", 1),
    Operation("gather", "gather", 1, root=True),
    Operation("scatter", "scatter", root=True),
    Operation("all_to_all", "alltoall", 1),
    Operation("all_to_all", "alltoall_base", 1, kernel="alltoall_base_", group=2),
    Operation("all_to_all", "all_to_all_single", 1),
    Operation("barrier", "barrier", None),
    Operation("monitored_barrier", "monitored_barrier", None),
    Operation("send", "send", peer=1, kernel="send", peer_at=2),
    Operation("recv", "recv", peer=1, kernel="recv_", peer_at=2),
    Operation("recv", "recv_anysource"),
)

FUNCTIONAL = {
    "_c10d_functional": (
        "all_reduce",
        "all_reduce_",
        "all_reduce_coalesced",
        "all_reduce_coalesced_",
        "all_gather_into_tensor",
        "all_gather_into_tensor_out",
        "all_gather_into_tensor_coalesced",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_out",
        "reduce_scatter_tensor_coalesced",
        "all_to_all_single",
        "broadcast",
        "broadcast_",
        "isend",
        "irecv",
        "batch_p2p_ops",
    ),
    "_dtensor": ("shard_dim_alltoall",),
}
"""The operators that DTensor and compiled code call, by their library: each of them calls for one
of those above, `batch_p2p_ops` for several, from C++. One that reduces has the reduction's name
behind its tensors."""
