"""What each endpoint asks to be looked for, before anybody is asked.

    all              the processes of this machine, and what PROBING_JOB_DIR lists
    job:NAME         those of one job
    rank:0-63        those ranks, of the same
    job:NAME/rank:0-3  those ranks of one job
    @FILE            the hosts in a file
    slurm:[NODES]    the nodes of an allocation; of a job, by its id
    k8s:NAME[:PORT]  the addresses behind a name; dns: is the same
    ray:[ADDRESS]    the nodes of a Ray cluster
    store:HOST:PORT  what is registered in the store of a torchrun job
    host:port, URL   a node server, or one agent
    anything else    one process, see `probing.reach.endpoint`

Rules of this file: an endpoint becomes a frozen plan; the only things read are those that name
hosts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...messages import rank_paths
from ...messages.frozen import dataclass
from ..registration import is_here, registrations
from .forms import is_address, names_many
from .providers.hostfile import hosts_in
from .providers.job_store import store_hosts
from .providers.named_hosts import Resolver, named_hosts
from .providers.ray_cluster import ray_hosts
from .providers.slurm import slurm_hosts
from .rank_sets import ranks_of

_NO_SERVER = (
    "No node server listens there: `probing serve --listen 0.0.0.0:9741 --tls-cert FILE --tls-key"
    " FILE`, beside each training, is one."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where to look for the processes of one endpoint, and which of them are meant.

    Attributes:
        word: The endpoint as the user wrote it.
        is_here: Whether the processes of this machine are looked through.
        addresses: Who else is asked, as far as the user named them.
        told: Who else is asked by the word of others.
        notes: What was not believed.
        no_server: What to do where no node server is at any of the addresses.
        job: Only the processes of that job.
        ranks: Only these ranks, all of which are expected.
        is_whole: Whether every rank of the job is expected.
        is_single: Whether it names one process, as `probing.reach.endpoint` does.
    """

    word: str
    is_here: bool = False
    addresses: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    no_server: str = ""
    job: str | None = None
    ranks: tuple[int, ...] | None = None
    is_whole: bool = False
    is_single: bool = False


def plan_of(
    word: str,
    env: Mapping[str, str],
    *,
    resolver: Resolver | None = None,
    timeout_s: float = 5.0,
) -> Plan:
    """Where to look for what an endpoint means.

    Args:
        timeout_s: How long who lists the hosts may take.

    Raises:
        BadEndpoint: It is none of the forms.
        Unreachable: Who lists the hosts does not answer.
    """
    kind, _, rest = word.partition(":")
    if word == "all":
        return _registered(Plan(word=word, is_here=True, is_whole=True), env)
    named = rank_paths.job_and_ranks(word)
    if named is not None and names_many(word):
        job, ranks = named[0], ranks_of(named[1])
        whole = _job_plan(word, job, env)
        return dataclasses.replace(whole, ranks=ranks, is_whole=False)
    if kind == "job" and named is None:
        return _job_plan(word, rest, env)
    if word.startswith("@"):
        return Plan(word=word, addresses=hosts_in(word[1:]), no_server=_NO_SERVER, is_whole=True)
    if kind == "slurm":
        hosts, way_out = slurm_hosts(rest, env)
        return Plan(word=word, addresses=hosts, no_server=way_out, is_whole=True)
    if kind in {"k8s", "dns"}:
        found = named_hosts(rest, kind=kind, resolve=resolver)
        return Plan(word=word, told=found, no_server=_NO_SERVER, is_whole=True)
    if kind == "ray":
        return Plan(word=word, told=ray_hosts(rest), no_server=_NO_SERVER, is_whole=True)
    if kind == "store":
        return _with_told(Plan(word=word, is_whole=True), store_hosts(rest, timeout_s=timeout_s))
    if is_address(word):
        return Plan(word=word, addresses=(word,))
    return Plan(word=word, is_single=True)


def where_named(plans: Sequence[Plan]) -> list[Plan]:
    """Plans of several endpoints: a job that is named beside machines is looked for only there."""
    places = [p for p in plans if (p.addresses or p.told) and not (p.is_here or p.job)]
    jobs = [p for p in plans if p.word.startswith("job:")]
    if not (places and jobs):
        return list(plans)
    return [_there(plan, places) if plan in jobs else plan for plan in plans if plan not in places]


def _there(plan: Plan, places: Sequence[Plan]) -> Plan:
    """The plan of a job, for some machines alone: nobody expects all of its ranks there."""
    named = rank_paths.job_and_ranks(plan.word)
    job, ranks = (named[0], ranks_of(named[1])) if named is not None else (plan.job, None)
    return Plan(
        word=plan.word,
        addresses=tuple(dict.fromkeys(word for place in places for word in place.addresses)),
        told=tuple(dict.fromkeys(word for place in places for word in place.told)),
        notes=tuple(note for place in places for note in place.notes),
        no_server=next((place.no_server for place in places if place.no_server), ""),
        job=job,
        ranks=ranks,
    )


def _job_plan(word: str, job: str | None, env: Mapping[str, str]) -> Plan:
    """Here, where it is registered, and on the nodes of the allocation if it is that job."""
    plan = _registered(Plan(word=word, is_here=True, job=job, is_whole=True), env)
    if job and job == env.get("SLURM_JOB_ID") and env.get("SLURM_JOB_NODELIST"):
        nodes, way_out = slurm_hosts("", env)
        addresses = (*plan.addresses, *nodes)
        return dataclasses.replace(plan, addresses=addresses, no_server=way_out)
    return plan


def _registered(plan: Plan, env: Mapping[str, str]) -> Plan:
    """With the servers that have left word in the shared directory.

    One of this very machine that runs is as good as named by the user, whose file it is.
    """
    directory = env.get("PROBING_JOB_DIR")
    if not directory:
        return plan
    found = registrations(Path(directory))
    fitting = [e for e in found.entries if plan.job is None or e.job in (None, plan.job)]
    near = dict.fromkeys(
        e.listen for e in fitting if is_here(e) and not e.listen.startswith("http://")
    )
    far = dict.fromkeys(e.listen for e in fitting if e.listen not in near)
    plan = dataclasses.replace(plan, notes=tuple(found.notes))
    return _with_told(plan, far, near)


def _with_told(plan: Plan, told: Iterable[str], near: Iterable[str] = ()) -> Plan:
    """With what was learned, as far as it is the address of a server."""
    odd = {word for word in (*told, *near) if not (is_address(word) and word.isprintable())}
    return dataclasses.replace(
        plan,
        addresses=tuple(word for word in near if word not in odd),
        told=tuple(word for word in told if word not in odd),
        notes=(*plan.notes, *(f"{word[:100]!r} is left out: it is no address" for word in odd)),
    )
