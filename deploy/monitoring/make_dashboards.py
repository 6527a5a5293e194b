#!/usr/bin/env python3
"""Makes the Grafana dashboards in deploy/monitoring/dashboards from the rows of panels in this
file.

  deploy/monitoring/make_dashboards.py

Every query may use $cluster, $instance, $job_id, $__rate_interval and $__range; tests run each of
them against a real Prometheus. A cluster is a label that the scrape configuration gives to a
coordinator and its workers. Without labels all coordinators belong to one cluster. An instance is a
coordinator.
"""
import argparse
import json
import pathlib

# the schema of Grafana 10; later versions convert it when they load a dashboard
SCHEMA_VERSION = 38
WIDTH = 24
DATASOURCE = {"type": "prometheus", "uid": "$datasource"}
CLUSTER = 'cluster=~"$cluster"'
COORDINATOR = f'{CLUSTER}, instance=~"$instance"'
JOB = f'{COORDINATOR}, job_id=~"$job_id"'  # in the coordinator's metrics
RANKS = f'{CLUSTER}, job_id=~"$job_id"'  # in the workers' metrics
RUNNING = 'state=~"running|suspect|dumping"'


def query(expr, legend="", instant=False, heatmap=False, table=False):
    target = {"datasource": DATASOURCE, "expr": expr, "legendFormat": legend or "__auto"}
    if instant:
        target.update(instant=True, range=False)
    else:
        target["range"] = True
    if heatmap:
        target["format"] = "heatmap"
    if table:
        target["format"] = "table"
    return target


def panel(kind, title, *targets, unit="short", width=8, height=7, description="", links=(), **more):
    defaults = {"unit": unit}
    if links:
        defaults["links"] = list(links)
    for name in ("min", "max", "thresholds", "mappings", "decimals"):
        if name in more:
            defaults[name] = more.pop(name)
    result = {"type": kind, "title": title, "description": description, "datasource": DATASOURCE,
              "targets": [{**target, "refId": chr(ord("A") + i)} for i, target in enumerate(targets)],
              "fieldConfig": {"defaults": defaults, "overrides": more.pop("overrides", [])},
              "options": more.pop("options", {}), "gridPos": {"w": width, "h": height}}
    return {**result, **more}


def stat(title, expr, unit="short", legend="", **more):
    return panel("stat", title, query(expr, legend, instant=True), unit=unit, width=more.pop("width", 4), height=4,
                 options={"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "textMode": more.pop("text", "auto")}, **more)


def lines(title, *targets, **more):
    stacked = more.pop("stacked", False)
    result = panel("timeseries", title, *targets, options={"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                                                          "tooltip": {"mode": "multi", "sort": "desc"}}, **more)
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 20 if stacked else 5, "showPoints": "auto", "spanNulls": False}
    if stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    result["fieldConfig"]["defaults"]["custom"] = custom
    return result


def rank_rows(title, expr, unit, **more):
    """A row per rank, a column per moment, the value as colour: works for any number of series,
    unlike Grafana's heat map of buckets.
    """
    result = panel("status-history", title, query(expr, "{{rank}}"), unit=unit, width=24, height=9,
                   options={"showValue": "never", "rowHeight": 0.9, "colWidth": 1, "legend": {"showLegend": False}}, **more)
    result["fieldConfig"]["defaults"]["color"] = {"mode": "continuous-BlYlRd"}
    return result


def buckets(title, expr, unit, **more):
    return panel("heatmap", title, query(expr, "{{le}}", heatmap=True), unit=unit,
                 options={"calculate": False, "yAxis": {"unit": unit}, "color": {"mode": "scheme", "scheme": "Blues"}}, **more)


def table(title, *targets, transformations=(), **more):
    return panel("table", title, *targets, transformations=list(transformations), options={"showHeader": True}, **more)


def hidden(*names):
    return {"id": "organize", "options": {"excludeByName": {name: True for name in ("Time", "__name__", "job", *names)},
                                          "indexByName": {}, "renameByName": {}}}


def only_link(title, url):
    return [{"title": title, "url": url}]


HERE = "${__url_time_range}&var-datasource=${datasource}&${cluster:queryparam}&${instance:queryparam}"
# Job numbers are unique per coordinator: a row links to the job of its coordinator.
OF_ROW = "${__url_time_range}&var-datasource=${datasource}&${cluster:queryparam}&var-instance=${__data.fields.instance}&var-job_id=${__data.fields.job_id}"
JOB_LINK = only_link("Job", f"/d/muster-job?{OF_ROW}")
INCIDENT_LINK = only_link("Incidents of the job", f"/d/muster-incidents?{OF_ROW}")
RANK_LINK = only_link("Ranks", f"/d/muster-ranks?{HERE}&var-job_id=${{__field.labels.job_id}}")

ALARM = {"mode": "absolute", "steps": [{"color": "green", "value": None}, {"color": "red", "value": 1}]}


def fleet():
    return [
        stat("Jobs that run", f"sum(muster_jobs{{{COORDINATOR}, {RUNNING}}})"),
        stat("Jobs that wait", f'sum(muster_jobs{{{COORDINATOR}, state=~"queued|starting|restarting"}})'),
        stat("Workers", f'sum(muster_workers{{{COORDINATOR}, state="connected"}})'),
        stat("Workers away or lost", f'sum(muster_workers{{{COORDINATOR}, state=~"away|lost"}})', thresholds=ALARM),
        stat("Slots in use", f"max(instance:muster_slots_used:ratio{{{COORDINATOR}}})", unit="percentunit"),
        stat("Nodes left out", f"sum(muster_fleet_excluded{{{COORDINATOR}}})", thresholds=ALARM),
        table("Jobs", query(f"max by (cluster, instance, job_id, name, state) (muster_job_state{{{COORDINATOR}}})", instant=True, table=True),
              query(f"max by (cluster, instance, job_id, name) (muster_job_goodput_ratio{{{COORDINATOR}}})", instant=True, table=True),
              query(f"max by (cluster, instance, job_id, name) (muster_job_step{{{COORDINATOR}}})", instant=True, table=True),
              query(f"max by (cluster, instance, job_id, name) (muster_job_restarts_total{{{COORDINATOR}}})", instant=True, table=True),
              transformations=[{"id": "merge", "options": {}},
                               {"id": "organize", "options": {"excludeByName": {"Time": True, "Value #A": True}, "indexByName": {},
                                                              "renameByName": {"Value #B": "goodput", "Value #C": "step", "Value #D": "restarts"}}}],
              links=JOB_LINK, width=16, height=9),
        table("Alerts that fire", query(f'sum by (alertname, severity, cluster, instance, job_id, incident, worker, rank) (ALERTS{{{CLUSTER}, alertname=~"Muster.*", alertstate="firing"}})',
                                        instant=True, table=True),
              transformations=[hidden("Value")], links=INCIDENT_LINK, width=8, height=9),
        lines("Jobs by state", query(f"sum by (state) (muster_jobs{{{COORDINATOR}}}) > 0", "{{state}}"), stacked=True),
        lines("Slots", query(f"sum by (state) (muster_slots{{{COORDINATOR}}})", "{{state}}"), stacked=True),
        lines("Goodput of the last hour", query(f"job_id:muster_goodput:ratio1h{{{COORDINATOR}}}", "{{job_id}} {{name}}"), unit="percentunit", max=1),
        lines("Tokens per second", query(f"sum by (cluster, instance, job_id, name) (muster_job_tokens_per_second{{{COORDINATOR}}})", "{{job_id}} {{name}}"), stacked=True),
        lines("Silent for longest", query(f"max(muster_fleet_heartbeat_age_max_seconds{{{COORDINATOR}}})", "all workers"),
              query(f"topk(10, muster_fleet_heartbeat_age_seconds{{{COORDINATOR}}})", "{{worker}}"), unit="s"),
        lines("Free on disks", query(f"instance:muster_disk_free:ratio{{{CLUSTER}}}", "{{instance}}"), unit="percentunit", min=0, max=1),
        lines("Nodes left out, by cause", query(f"sum by (cause) (muster_fleet_excluded{{{COORDINATOR}}}) > 0", "{{cause}}"), stacked=True),
        lines("Checks of nodes", query(f"sum by (result) (muster_fleet_checks_total{{{COORDINATOR}}})", "{{result}}")),
        lines("Streams that workers opened", query(f"sum(rate(muster_worker_connections_total{{{CLUSTER}}}[$__rate_interval]))", "connections/s")),
    ]


def job():
    age = f"max(time() - muster_job_checkpoint_timestamp_seconds{{{JOB}}})"
    return [
        stat("State", f"max by (state) (muster_job_state{{{JOB}}})", legend="{{state}}", text="name"),
        stat("Step", f"max(muster_job_step{{{JOB}}})"),
        stat("Goodput", f"max(muster_job_goodput_ratio{{{JOB}}})", unit="percentunit"),
        stat("MFU", f"max(muster_job_mfu_ratio{{{JOB}}})", unit="percentunit"),
        stat("Checkpoint's age", age, unit="s"),
        stat("Incidents", f"sum(muster_job_incidents_total{{{JOB}}})", thresholds=ALARM,
             links=only_link("Incidents", f"/d/muster-incidents?{HERE}&${{job_id:queryparam}}")),
        lines("Loss", query(f"muster_job_loss{{{JOB}}}", "{{job_id}} {{name}}")),
        lines("Gradient norm", query(f"muster_job_grad_norm{{{JOB}}}", "{{job_id}} {{name}}")),
        lines("Tokens per second", query(f"muster_job_tokens_per_second{{{JOB}}}", "{{job_id}} {{name}}")),
        lines("MFU, and what it usually is", query(f"muster_job_mfu_ratio{{{JOB}}}", "{{job_id}} now"),
              query(f"quantile_over_time(0.5, muster_job_mfu_ratio{{{JOB}}}[1d])", "{{job_id}} median of a day"), unit="percentunit", min=0),
        lines("Time of a step", query(f"histogram_quantile(0.5, sum by (cluster, instance, job_id, le) (rate(muster_job_step_seconds_bucket{{{JOB}}}[$__rate_interval])))", "{{job_id}} median"),
              query(f"histogram_quantile(0.99, sum by (cluster, instance, job_id, le) (rate(muster_job_step_seconds_bucket{{{JOB}}}[$__rate_interval])))", "{{job_id}} 99%"),
              unit="s", min=0),
        buckets("Steps by their time", f"sum by (le) (increase(muster_job_step_seconds_bucket{{{JOB}}}[$__rate_interval]))", "s"),
        lines("Where the time was lost", query(f"sum by (class) (muster_job_lost_seconds_total{{{JOB}}})", "{{class}}"), unit="s", stacked=True),
        lines("Why it was lost", query(f"sum by (cause) (muster_job_lost_seconds_total{{{JOB}}})", "{{cause}}"), unit="s", stacked=True),
        lines("Goodput", query(f"muster_job_goodput_ratio{{{JOB}}}", "{{job_id}} all its life"),
              query(f"job_id:muster_goodput:ratio1h{{{JOB}}}", "{{job_id}} last hour"), unit="percentunit", min=0, max=1),
        lines("Steps, and what is saved of them", query(f"muster_job_step{{{JOB}}}", "{{job_id}} completed"),
              query(f"muster_job_checkpoint_step{{{JOB}}}", "{{job_id}} in the newest checkpoint")),
        lines("Launches and restarts", query(f"muster_job_attempt{{{JOB}}}", "{{job_id}} attempt"),
              query(f"muster_job_restarts_total{{{JOB}}}", "{{job_id}} restarts")),
        lines("Suspected of a hang", query(f"muster_job_suspect{{{JOB}}}", "{{job_id}}"), max=1),
    ]


def ranks():
    return [
        rank_rows("Time of the last step, by rank", f"max by (rank, job_id) (muster_rank_last_step_seconds{{{RANKS}}})", "s", links=RANK_LINK,
                  description="A sample of the ranks (--rank-series). All of them wait for the slowest: see the score."),
        rank_rows("Time since the last progress, by rank", f"max by (rank, job_id) (muster_rank_progress_age_seconds{{{RANKS}}})", "s",
                  description="In a hang all ranks stand still; the incident names the cause."),
        rank_rows("Own time for a step, over the median rank's", f"max by (rank, job_id) (muster_job_straggler_score{{{JOB}}})", "none",
                  description="The slowest ranks of the whole job."),
        lines("Waiting for data, by rank", query(f"sum by (rank) (rate(muster_rank_data_wait_seconds_total{{{RANKS}}}[$__rate_interval]))", "{{rank}}"),
              unit="percentunit"),
        lines("Tokens per second, by rank", query(f"sum by (rank) (muster_rank_tokens_per_second{{{RANKS}}})", "{{rank}}")),
        lines("MFU, by rank", query(f"max by (rank) (muster_rank_mfu_ratio{{{RANKS}}})", "{{rank}}"), unit="percentunit", min=0),
        lines("Step, by rank", query(f"max by (rank) (muster_rank_step{{{RANKS}}})", "{{rank}}")),
        lines("Silent for longest, by node", query(f"max by (instance) (muster_worker_progress_age_max_seconds{{{RANKS}}})", "{{instance}}"), unit="s"),
        lines("Time of a step, of all ranks", query(f"histogram_quantile(0.5, sum by (le) (rate(muster_worker_step_seconds_bucket{{{CLUSTER}}}[$__rate_interval])))", "median"),
              query(f"histogram_quantile(0.99, sum by (le) (rate(muster_worker_step_seconds_bucket{{{CLUSTER}}}[$__rate_interval])))", "99%"), unit="s", min=0),
        lines("Ranks that run, by node", query(f"sum by (instance) (muster_worker_ranks_running{{{CLUSTER}}})", "{{instance}}"), stacked=True),
        lines("Ends of ranks", query(f"sum by (how) (muster_worker_rank_exits_total{{{CLUSTER}}})", "{{how}}")),
        lines("Time for the last checkpoint, by rank", query(f"max by (rank) (muster_rank_last_checkpoint_seconds{{{RANKS}}})", "{{rank}}"), unit="s"),
    ]


def incidents():
    return [
        table("Newest incidents: `muster incident show NUMBER`",
              query(f"max by (cluster, instance, incident, job_id, name, kind, rank, worker) (1000 * muster_job_incident_timestamp_seconds{{{JOB}}})", instant=True, table=True),
              transformations=[{"id": "organize", "options": {"excludeByName": {"Time": True}, "indexByName": {"incident": 0, "kind": 1},
                                                              "renameByName": {"Value": "opened"}}}],
              overrides=[{"matcher": {"id": "byName", "options": "opened"}, "properties": [{"id": "unit", "value": "dateTimeAsIso"}]}],
              links=JOB_LINK, width=16, height=8),
        stat("In the time shown", f"sum(increase(muster_job_incidents_total{{{JOB}}}[$__range]))", thresholds=ALARM, decimals=0),
        stat("Found within (median)", f"histogram_quantile(0.5, sum by (le) (muster_job_detection_seconds_bucket{{{JOB}}}))", unit="s"),
        lines("Incidents by kind", query(f"sum by (kind) (muster_job_incidents_total{{{JOB}}})", "{{kind}}"), stacked=True),
        lines("Incidents of all jobs, by kind", query(f"sum by (kind) (increase(muster_fleet_incidents_total{{{COORDINATOR}}}[1h]))", "{{kind}} in an hour"), stacked=True),
        buckets("Time until they were found", f"sum by (le) (muster_job_detection_seconds_bucket{{{JOB}}})", "s"),
        lines("Lost to faults, by cause", query(f'sum by (cause) (muster_job_lost_seconds_total{{{JOB}, cause!="none"}})', "{{cause}}"), unit="s", stacked=True),
        lines("Lost to faults, by what it was spent on", query(f'sum by (class) (muster_job_lost_seconds_total{{{JOB}, cause!="none"}})', "{{class}}"),
              unit="s", stacked=True),
        lines("Suspected, and restarted", query(f"muster_job_suspect{{{JOB}}}", "{{job_id}} suspect"),
              query(f"muster_job_restarts_total{{{JOB}}}", "{{job_id}} restarts")),
        lines("Nodes left out, by cause", query(f"sum by (cause) (muster_fleet_exclusions_total{{{COORDINATOR}}})", "{{cause}}")),
        lines("Alerts that fire", query(f'sum by (alertname) (ALERTS{{{CLUSTER}, alertname=~"Muster.*", alertstate="firing"}})', "{{alertname}}"), stacked=True),
    ]


def coordinator():
    def quantile(q, metric, by=""):
        return f"histogram_quantile({q}, sum by ({by}le) (rate({metric}_bucket{{{COORDINATOR}}}[$__rate_interval])))"

    def rate(metric, by, more=""):
        return f"sum by ({by}) (rate({metric}{{{COORDINATOR}{more}}}[$__rate_interval]))"

    return [
        stat("Decides", f"min(muster_coordinator_leader{{{COORDINATOR}}})", description="0 while the loop is stuck or the state cannot be stored."),
        stat("Oldest event", f"max(muster_coordinator_oldest_event_age_seconds{{{COORDINATOR}}})", unit="s"),
        stat("Events that wait", f"max(muster_coordinator_event_queue_length{{{COORDINATOR}}})"),
        stat("Failed transactions", f"sum(increase(muster_coordinator_transaction_failures_total{{{COORDINATOR}}}[$__range]))", thresholds=ALARM, decimals=0),
        stat("Starts", f"sum(changes(muster_coordinator_epoch{{{COORDINATOR}}}[$__range]))", decimals=0, description="In the time shown."),
        stat("Running for", f"time() - max(process_start_time_seconds{{{COORDINATOR}}} and on (cluster, instance) muster_coordinator_epoch{{{COORDINATOR}}})", unit="s",
             links=only_link("Fleet", f"/d/muster-fleet?{HERE}")),
        lines("Lag of the core loop", query(quantile(0.5, "muster_coordinator_loop_lag_seconds"), "median"),
              query(quantile(0.99, "muster_coordinator_loop_lag_seconds"), "99%"), unit="s", min=0,
              description="From an event's arrival to its handling."),
        lines("Events", query(rate("muster_coordinator_events_total", "event"), "{{event}}"), unit="ops", stacked=True),
        lines("Event queue", query(f"max(muster_coordinator_event_queue_length{{{COORDINATOR}}})", "waiting"),
              query(f"0.25 * max(muster_coordinator_event_queue_limit{{{COORDINATOR}}})", "alert"), min=0),
        lines("Time to store", query(quantile(0.5, "muster_coordinator_transaction_seconds"), "median"),
              query(quantile(0.99, "muster_coordinator_transaction_seconds"), "99%"), unit="s", min=0),
        lines("RPCs", query(rate("muster_coordinator_rpcs_total", "method"), "{{method}}"), unit="ops", stacked=True),
        lines("RPCs that were refused or failed", query(rate("muster_coordinator_rpcs_total", "method, code", ', code!="OK"') + " or vector(0)", "{{method}} {{code}}"),
              unit="ops"),
        lines("Reads refused because of overload", query(rate("muster_coordinator_shed_reads_total", "method"), "{{method}}"), unit="ops", stacked=True,
              description="While the lag is above --overload-lag-ms."),
        lines("Time to answer, 99%", query(quantile(0.99, "muster_coordinator_rpc_seconds", "method, "), "{{method}}"), unit="s", min=0),
        lines("Open streams", query(f"sum by (method) (muster_coordinator_streams{{{COORDINATOR}}})", "{{method}}")),
        lines("Registrations of workers", query(rate("muster_coordinator_registrations_total", "result"), "{{result}}"), unit="ops"),
        lines("CPU", query(f"rate(process_cpu_seconds_total{{{COORDINATOR}}}[$__rate_interval]) and on (cluster, instance) muster_coordinator_epoch{{{COORDINATOR}}}", "{{instance}} cores"),
              min=0),
        lines("Resident memory", query(f"process_resident_memory_bytes{{{COORDINATOR}}} and on (cluster, instance) muster_coordinator_epoch{{{COORDINATOR}}}", "{{instance}}"),
              unit="bytes", min=0),
        lines("File descriptors in use", query(f"process_open_fds{{{COORDINATOR}}} / process_max_fds{{{COORDINATOR}}} and on (cluster, instance) muster_coordinator_epoch{{{COORDINATOR}}}",
                                               "{{instance}}"), unit="percentunit", min=0, max=1),
    ]


def gpus():
    one = "{{instance}} GPU {{gpu}}"

    def described(figure):
        return query(f"max by (cluster, instance, gpu, model, uuid) (muster_gpu_info{{{CLUSTER}}} * on (cluster, instance, gpu) group_left () {figure}{{{CLUSTER}}})",
                     instant=True, table=True)

    return [
        stat("GPUs", f"sum(muster_worker_gpus{{{CLUSTER}}})"),
        stat("Given to ranks", f"sum(muster_worker_gpus_used{{{CLUSTER}}})"),
        stat("To be repaired", f"count(muster_gpu_healthy{{{CLUSTER}}} == 0) or vector(0)", thresholds=ALARM,
             description="Lost, or with an error that requires a reset: nothing is started on them."),
        stat("Slowed down", f'count(count by (instance, gpu) (muster_gpu_throttled{{{CLUSTER}, reason!="power_cap"}} > 0)) or vector(0)', thresholds=ALARM,
             description="By heat or by the power supply. Clocks at the power limit are normal under load and do not count."),
        stat("Hottest", f"max(muster_gpu_temperature_celsius{{{CLUSTER}}})", unit="celsius"),
        stat("Power", f"sum(muster_gpu_power_watts{{{CLUSTER}}})", unit="watt"),
        lines("Part of the time in which a kernel ran", query(f"muster_gpu_utilization_ratio{{{CLUSTER}}}", one), unit="percentunit", min=0, max=1,
              description="The share of time with a running kernel. Low values are idle time. MFU shows how well kernels use the GPU."),
        lines("Memory in use", query(f"muster_gpu_memory_used_bytes{{{CLUSTER}}} / muster_gpu_memory_bytes{{{CLUSTER}}}", one), unit="percentunit", min=0, max=1),
        lines("Temperature", query(f"muster_gpu_temperature_celsius{{{CLUSTER}}}", one), unit="celsius"),
        lines("Power, by GPU", query(f"muster_gpu_power_watts{{{CLUSTER}}}", one), unit="watt", min=0),
        lines("Clock of the multiprocessors", query(f'muster_gpu_clock_hertz{{{CLUSTER}, clock="sm"}}', one), unit="hertz", min=0,
              description="A clock below the others makes its rank a straggler, and all other ranks wait."),
        lines("Slowed down, by reason", query(f"sum by (reason) (muster_gpu_throttled{{{CLUSTER}}})", "{{reason}}"), min=0, stacked=True),
        lines("Memory errors", query(f"sum by (instance, gpu, type) (muster_gpu_ecc_errors_total{{{CLUSTER}}})", one + " {{type}}"),
              description="Since the driver was loaded. ECC has corrected most errors; an uncorrected error ends the program on the GPU."),
        lines("Xids, since the worker was started", query(f"sum by (instance, gpu, xid) (muster_gpu_xid_errors_total{{{CLUSTER}}})", one + " Xid {{xid}}")),
        lines("Since NVML answered", query(f"muster_worker_gpu_answer_age_seconds{{{CLUSTER}}}", "{{instance}}"), unit="s", min=0),
        table("GPUs", described("muster_gpu_healthy"), described("muster_gpu_row_remap_failed"),
              transformations=[{"id": "merge", "options": {}},
                               {"id": "organize", "options": {"excludeByName": {"Time": True}, "indexByName": {},
                                                              "renameByName": {"Value #A": "healthy", "Value #B": "bad rows left"}}}],
              links=only_link("Fleet", f"/d/muster-fleet?{HERE}"), width=24, height=9),
    ]


DASHBOARDS = {"fleet": ("Muster fleet", fleet, False), "job": ("Muster job", job, True), "ranks": ("Muster ranks", ranks, True),
              "incidents": ("Muster incidents", incidents, True), "gpus": ("Muster GPUs", gpus, False),
              "coordinator": ("Muster coordinator", coordinator, False)}


def laid_out(panels):
    """Places panels from left to right, with a new row when one is full."""
    x = y = tallest = 0
    for number, one in enumerate(panels, 1):
        place = one["gridPos"]
        if x + place["w"] > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        place.update(x=x, y=y)
        x, tallest = x + place["w"], max(tallest, place["h"])
        one["id"] = number
    return panels


def variables(of_job):
    result = [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}]
    # Series without the label belong to all clusters.
    values = [("cluster", "Cluster", "label_values(muster_coordinator_leader, cluster)", 1, ".*"),
              ("instance", "Coordinator", f"label_values(muster_coordinator_leader{{{CLUSTER}}}, instance)", 1, ".+")]
    if of_job:
        values.append(("job_id", "Job", f"label_values(muster_job_attempt{{{COORDINATOR}}}, job_id)", 4, ".+"))
    for name, label, text, sort, everything in values:
        result.append({"name": name, "label": label, "type": "query", "datasource": DATASOURCE, "definition": text, "hide": 0,
                       "query": {"query": text, "refId": "StandardVariableQuery"}, "refresh": 2, "sort": sort, "multi": True, "includeAll": True,
                       "allValue": everything, "current": {"text": ["All"], "value": ["$__all"]}})
    return {"list": result}


def dashboard(name):
    title, panels, of_job = DASHBOARDS[name]
    annotations = [{"name": "Incidents", "datasource": DATASOURCE, "enable": True, "hide": False, "iconColor": "red",
                    "expr": f"1000 * muster_job_incident_timestamp_seconds{{{JOB if of_job else COORDINATOR}}}", "useValueForTime": True,
                    "titleFormat": "incident {{incident}}: {{kind}}", "textFormat": "job {{job_id}} {{name}}, rank {{rank}} {{worker}}"}]
    return {"uid": f"muster-{name}", "title": title, "tags": ["muster"], "schemaVersion": SCHEMA_VERSION, "editable": True, "refresh": "15s",
            "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "graphTooltip": 1, "templating": variables(of_job),
            "annotations": {"list": annotations},
            "links": [{"title": "Muster", "type": "dashboards", "tags": ["muster"], "asDropdown": False, "includeVars": True, "keepTime": True,
                       "targetBlank": False, "icon": "external link", "tooltip": "", "url": ""}],
            "panels": laid_out(panels())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "dashboards")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in DASHBOARDS:
        (arguments.out / f"{name}.json").write_text(json.dumps(dashboard(name), indent=2) + "\n")


if __name__ == "__main__":
    main()
