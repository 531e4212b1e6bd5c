"""The saved questions about what a training runs on: memory, loaders, ranks, devices, threads.

Rules of this file: as those of `library`, which lists them.
"""

from __future__ import annotations

from ...plugins import Question

RESOURCES: tuple[Question, ...] = (
    Question(
        name="memory-phases",
        doc="In which phase of a step is most memory in use?",
        sql="""
SELECT device, phase, count(*) AS times,
  round(median(coalesce(allocated_bytes, resident_bytes)) / 1048576, 1) AS median_mib,
  round(max(coalesce(allocated_bytes, resident_bytes)) / 1048576, 1) AS most_mib,
  round(max(peak_bytes) / 1048576, 1) AS peak_mib
FROM python.memory GROUP BY device, phase ORDER BY device, most_mib DESC
""",
    ),
    Question(
        name="growing-calls",
        doc="After which module calls is more memory in use than before?",
        sql="""
SELECT module, class, root, stage, count(*) AS calls, round(sum(growth) / 1048576, 1) AS mib,
  round(max(growth) / 1048576, 2) AS most_mib
FROM (SELECT *, allocated_bytes - lag(allocated_bytes) OVER (
    PARTITION BY rank, host, pid, thread_id
    ORDER BY start_ns + duration_ns, depth DESC, seq) AS growth
  FROM python.torch_trace WHERE duration_ns IS NOT NULL AND stage IN ('forward', 'backward'))
WHERE growth > 0 GROUP BY module, class, root, stage ORDER BY mib DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="ooms",
        doc="When did it run out of memory, and where?",
        sql="""
SELECT step, phase, device, module, round(requested_bytes / 1048576, 1) AS requested_mib,
  round(free_bytes / 1048576, 1) AS free_mib, round(allocated_bytes / 1048576, 1) AS allocated_mib,
  bounded_by, batch
FROM python.ooms ORDER BY time_ns DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="batch-sizes",
        doc="Which sizes do batches have?",
        sql="""
SELECT loader, tensors, count(*) AS batches, round(avg(samples), 1) AS samples,
  round(avg(bytes) / 1048576, 3) AS mib, round(avg(duration) * 1e3, 2) AS waited_ms
FROM python.batches WHERE duration IS NOT NULL AND NOT coalesce(exhausted, false)
GROUP BY loader, tensors ORDER BY batches DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="loader-workers",
        doc="Is one worker of a loader waited for longer than the others?",
        sql="""
SELECT loader, worker, count(*) AS batches, round(avg(duration) * 1e3, 2) AS waited_ms,
  round(max(duration) * 1e3, 2) AS longest_ms, round(sum(duration), 2) AS waited_s
FROM python.batches WHERE duration IS NOT NULL GROUP BY loader, worker ORDER BY waited_s DESC
""",
    ),
    Question(
        name="collective-kinds",
        doc="What do ranks send each other in a step?",
        sql="""
SELECT op, process_group, group_size, sum(times) AS times,
  round(sum(times) / count(*), 1) AS times_a_step,
  round(sum(bytes) / count(*) / 1048576, 3) AS mib_a_step,
  round(sum(wait_ns) / 1e6 / count(*), 3) AS waited_ms_a_step
FROM (SELECT op, process_group, group_size, count(*) AS times, sum(bytes) AS bytes,
    sum(wait_ns) AS wait_ns
  FROM python.collectives GROUP BY op, process_group, group_size, rank, host, pid, step)
GROUP BY op, process_group, group_size
ORDER BY waited_ms_a_step DESC NULLS LAST
""",
    ),
    Question(
        name="open-collectives",
        doc="Which collectives have not ended?",
        sql="""
SELECT step, op, process_group, seq, shapes, make_timestamp_ns(start_ns) AS utc, caller
FROM python.collectives WHERE duration IS NULL ORDER BY start_ns
""",
    ),
    Question(
        name="devices",
        doc="How busy, hot and full is its device?",
        sql="""
SELECT min(step) AS from_step, max(step) AS to_step, device,
  round(100 * avg(busy), 1) AS busy_percent,
  round(max(used_bytes) / 1048576, 1) AS used_mib, round(avg(power_w), 1) AS power_w,
  max(temperature_c) AS temperature_c, round(avg(sm_mhz)) AS sm_mhz,
  string_agg(DISTINCT throttled, '; ') AS throttled, max(ecc_errors) AS ecc_errors
FROM (SELECT *, ntile($parts) OVER (PARTITION BY device ORDER BY seq) AS part FROM python.devices)
GROUP BY device, part ORDER BY device, from_step
""",
        parameters={"parts": "10"},
    ),
    Question(
        name="device-modules",
        doc="Which modules take most of the accelerator's time?",
        sql="""
SELECT module, class, root, stage, sum(calls) AS calls, round(sum(s) * 1e3 / sum(timed), 3) AS ms,
  round(sum(s) * 1e3 / count(*), 3) AS ms_a_step
FROM (SELECT module, class, root, stage, count(*) AS calls, count(device_s) AS timed,
    sum(device_s) AS s
  FROM python.device_times GROUP BY module, class, root, stage, rank, host, pid, step)
GROUP BY module, class, root, stage
ORDER BY ms_a_step DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="processor",
        doc="How much of the processor does it get?",
        sql="""
SELECT min(step) AS from_step, max(step) AS to_step,
  round(100 * sum(cpu_s) / sum(duration), 1) AS thread_percent,
  round(100 * sum(process_cpu_s) / sum(duration), 1) AS process_percent,
  round(sum(gc_s) * 1e3 / count(*), 3) AS gc_ms_a_step,
  round(sum(involuntary_switches) / count(*), 1) AS preempted_a_step,
  sum(major_faults) AS faults_from_disk
FROM (SELECT *, ntile($parts) OVER (ORDER BY step) AS part FROM python.steps
  WHERE duration IS NOT NULL)
GROUP BY part ORDER BY from_step
""",
        parameters={"parts": "10"},
    ),
    Question(
        name="functions",
        doc="In which functions are its threads most often?",
        sql="""
SELECT thread, func, file, count(*) AS samples,
  round(100 * count(*) / sum(count(*)) OVER (PARTITION BY thread), 1) AS percent_of_the_thread
FROM python.samples GROUP BY thread, func, file ORDER BY samples DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="stalls",
        doc="When did no step end for long?",
        sql="""
SELECT step, make_timestamp_ns(start_ns) AS utc, round(duration, 1) AS s,
  round(usual_s, 3) AS usual_s, state
FROM probing.stalls ORDER BY start_ns DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
)
"""All of them."""
