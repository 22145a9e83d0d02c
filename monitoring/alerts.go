package monitoring

// Alert is something to be woken by, or to look at in the morning.
type Alert struct {
	Name     string
	Expr     string
	For      string // how long it must hold, as Prometheus writes it
	Severity string // "page" or "ticket"
	Summary  string
	// Runbook says what to look at and what to do, in a few sentences.
	Runbook string
}

// Alerts are all there are.
func Alerts() []Alert {
	return []Alert{
		{
			"WardropNobodyLeads", `sum(wardrop_control_leading) == 0 or absent(wardrop_control_leading)`, "1m", "page",
			"No member of the control plane leads: no plan is made.",
			"Requests are served all the same, by the last plan; from its `good_for` on its weights give way to the engines' capacities, within ten minutes. `wardrop status -c FILE` shows which members answer: a majority must. Start those that are down; one that has lost its data with `--join`. With an etcd outside, look at that first.",
		},
		{
			"WardropMemberDown", `count(wardrop_control_leading) < count(count_over_time(wardrop_control_leading[1h])) `, "5m", "ticket",
			"A member of the control plane has gone.",
			"The others go on. Another loss may be one too many: start it again, with `--join` if its data is lost or spoilt.",
		},
		{
			"WardropPlanOld", `max(wardrop_control_plan_age_seconds and on (instance) wardrop_control_leading == 1) > 30`, "1m", "page",
			"The leader makes no plans.",
			"Look at its log and at `wardrop_control_tick_seconds`. Restarting it hands leadership over.",
		},
		{
			"WardropPlanFallback", `max(wardrop_control_plan_fallback) == 1`, "2m", "ticket",
			"The policy gives no plan: the last one is rescaled to the engines that live.",
			"`wardrop status` says why. Until it is mended weights follow neither demand nor distances. `wardrop override policy static` is a way out.",
		},
		{
			"WardropPlanHeld", `max by (rail) (wardrop_control_hold) == 1`, "2m", "ticket",
			"A guard rail holds the policy's plan back.",
			"`wardrop status` says which rail, with the figures. Movement: was a distance or a profile mistyped? `wardrop override release` lets it through. Fresh: most data planes or readings have fallen silent; find out why. Roll-back: failures rose after a plan; `wardrop why change` shows what it moved, and it ends by itself.",
		},
		{
			"WardropRollback", `increase(wardrop_control_rollbacks_total[10m]) > 0`, "0m", "ticket",
			"A plan was taken back because failures rose after it.",
			"`wardrop engines` shows which engines fail. What the plan moved there: `wardrop why change`.",
		},
		{
			"WardropSnapshotStale", `max by (instance) (wardrop_proxy_snapshot_stale) == 1`, "2m", "page",
			"A data plane gets no new plans.",
			"It goes on by its last one. If all do, see WardropNobodyLeads; if one does, its way to the control plane is cut, or it refuses what comes: `wardrop status` shows the reason under REFUSED.",
		},
		{
			"WardropDataPlaneGone", `min by (cluster) (wardrop_control_data_planes and on (instance) wardrop_control_leading == 1) == 0`, "2m", "page",
			"No data plane of a cluster reports.",
			"Are they down, or cut off from the control plane? Until one reports, the demand of the cluster is what the configuration expects.",
		},
		{
			"WardropSheds", `sum by (model, priority) (rate(wardrop_proxy_shed_total{priority!="batch"}[5m])) > 0`, "5m", "page",
			"Requests above batch are refused because demand exceeds capacity.",
			"`wardrop advise` says where another engine would let most in. Are engines missing? `wardrop engines`. Lower priorities go first; `wardrop what-if --add REGION/MODEL=N` shows how many would do.",
		},
		{
			"WardropFull", `sum by (cluster) (rate(wardrop_proxy_refused_total{code="full"}[5m])) > 0.1`, "5m", "ticket",
			"A data plane finds no room on any engine of a model.",
			"More came than was planned for, or engines hold more than they should. Compare `wardrop demand` with what arrives, and `wardrop engines` with the plan's load.",
		},
		{
			"WardropEngineFails", `sum by (engine) (rate(wardrop_proxy_attempts_total{outcome=~"failure|unreachable|stalled"}[5m])) / sum by (engine) (rate(wardrop_proxy_attempts_total[5m])) > 0.05`, "5m", "ticket",
			"More than a twentieth of the attempts at an engine fail.",
			"Clients see little of it: failures before the first byte are retried. `wardrop engines` shows its state and why; `wardrop drain ENGINE` takes it out.",
		},
		{
			"WardropEngineSlow", `max by (engine) (wardrop_control_engine_slowdown) > 1.5`, "10m", "ticket",
			"An engine is much slower than its profile.",
			"The plan counts with it already. Is something else on its GPU, is it throttled, does it preempt? `wardrop engines`.",
		},
		{
			"WardropEngineUnread", `max by (engine) (wardrop_signals_age_seconds) > 60`, "5m", "ticket",
			"An engine has said nothing of itself for a minute.",
			"It is served as before: stale is not dead. Does its metrics page answer to whoever reads it (`wardrop engines`, column READ BY)?",
		},
		{
			"WardropTickSlow", `histogram_quantile(0.99, sum by (le) (rate(wardrop_control_tick_seconds_bucket[10m]))) > 1`, "10m", "ticket",
			"A tick of the control plane takes more than a second.",
			"Plans come late. Is the machine busy? `wardrop solve --bench` on the same configuration shows what the optimizer takes alone.",
		},
		{
			"WardropDiscoveryOld", `max by (source) (wardrop_discover_age_seconds) > 300`, "5m", "ticket",
			"A source of engines has not answered for five minutes.",
			"What it found stays in force; new engines are not seen. The log says what it answers.",
		},
		{
			"WardropRelayCutOff", `max by (instance) (wardrop_relay_upstreams{connected="true"}) == 0`, "2m", "ticket",
			"A relay reaches none of its upstreams.",
			"It serves its last snapshots. Its data planes' reports do not arrive: the plan counts with what is configured for them.",
		},
	}
}
