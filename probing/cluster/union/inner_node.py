"""Answers a statement over several machines, on one of them: its own rows, and those of the others.

Rules of this file: runs in the process that a node server has made for the request. What the
machines give is made one answer by the same statements as at the end of the way; a machine that
is not reached from here is left out of the account, and so asked by whoever asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from ...errors import BadRequest
from ...messages import common as wire
from ...messages.tree import NODES_KEY, NodeAccount, NodeAccounts, TreeRequest, TreeWork
from ...messages.union import MEMBERS_KEY, UnionOutcomes
from ...rundir.folders import RunDirectory
from ...sql.process_columns import concatenated
from ...tables import TABLES
from ..job.handing_on import reachable
from ..job.tree import FAN_OUTS, ask_nodes
from .asking import run_over
from .errors import UnionTooLarge
from .node_answer import answer
from .partials import combined
from .tree_asking import Machine, Question, Rows, TreeAsker

_SHARE = 0.8


def answer_tree(work: TreeWork, directory: RunDirectory) -> pa.Table:
    """The rows of all machines that were reached, with the account of them in the metadata.

    Raises:
        ProbingError: The statement cannot be run here, or the answer is too large.
    """
    request = work.request
    if request.way.fan_out not in FAN_OUTS:
        raise BadRequest(f"the fan-out must be {FAN_OUTS.start} to {FAN_OUTS.stop - 1}")
    with ThreadPoolExecutor(1) as pool:
        own = pool.submit(answer, request.own, directory)
        others = _ask_others(work, directory)
        rows = own.result()
    told = wire.decode(UnionOutcomes, rows.schema.metadata[MEMBERS_KEY])
    accounts = [NodeAccount(url="", members=told.members)]
    accounts += [account for one in others for account in one.accounts]
    parts = [rows.replace_schema_metadata(None), *(one.rows for one in others)]
    found = together(request, parts) if others else parts[0]
    limit = request.own.max_bytes
    if found.nbytes > limit:
        ranks = sum(len(account.members) for account in accounts)
        raise UnionTooLarge(estimate=found.nbytes, rows=len(found), ranks=ranks, budget=limit)
    return found.replace_schema_metadata({NODES_KEY: wire.encode(NodeAccounts(nodes=(*accounts,)))})


def together(request: TreeRequest, parts: Sequence[pa.Table]) -> pa.Table:
    """What several machines gave as one answer."""
    left_s = request.own.timeout_s
    if request.combine is not None:
        return combined(parts, request.combine, timeout_s=left_s)
    if request.is_repeated:
        table = next(table for table in TABLES if table.full_name == request.own.table)
        return run_over(table, request.own.sql, concatenated(table, parts), timeout_s=left_s)
    return pa.concat_tables(parts, promote_options="permissive")


def _ask_others(work: TreeWork, directory: RunDirectory) -> list[Rows]:
    """What the other machines gave.

    Raises:
        ProbingError: One of them has too much.
    """
    request = work.request
    members = {entry.node.url: entry.members for entry in request.nodes}
    addresses = reachable(
        [entry.node for entry in request.nodes],
        directory,
        token=work.token,
        listen=work.listen,
        asker=request.way.place,
    )
    machines = {
        url: Machine(address=address, members=members[url]) for url, address in addresses.items()
    }
    question = Question(
        request=request.own, combine=request.combine, is_repeated=request.is_repeated
    )
    asker = TreeAsker(machines, [question], request.way, is_for_others=True)
    final = frozenset({UnionTooLarge.code})
    asked = ask_nodes(
        list(machines),
        asker.ask,
        timeout_s=request.own.timeout_s * _SHARE,
        fan_out=request.way.fan_out,
        final=final,
    )
    for error in asked.failed.values():
        if error.code in final:
            raise error
    return [rows for reached in asked.values for rows in reached.value]
