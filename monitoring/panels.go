package monitoring

// Panel is a graph.
type Panel struct {
	Title string
	Unit  string // of Grafana: "s", "reqps", "percentunit", "short", "none"
	// Lines are the expressions, each with its legend.
	Lines []Line
	// Stack draws the lines on top of each other.
	Stack bool
}

// Line is one expression of a panel.
type Line struct{ Expr, Legend string }

// Row is a row of panels with a title.
type Row struct {
	Title  string
	Panels []Panel
}

// Dashboard is a page of rows.
type Dashboard struct {
	ID    string // of the file and in the URL
	Title string
	Rows  []Row
}

// Dashboards are the pages that there are.
func Dashboards() []Dashboard { return []Dashboard{overview(), engines(), controlPlane()} }

func overview() Dashboard {
	return Dashboard{"wardrop", "Wardrop", []Row{
		{"Requests", []Panel{
			{"Arrivals by model", "reqps", []Line{{`sum by (model) (rate(wardrop_proxy_demand_total[1m]))`, "{{model}}"}}, true},
			{"Not served", "reqps", []Line{
				{`sum by (priority) (rate(wardrop_proxy_shed_total[1m]))`, "shed, {{priority}}"},
				{`sum by (code) (rate(wardrop_proxy_refused_total[1m]))`, "refused, {{code}}"},
			}, true},
			{"Time to the first byte", "s", []Line{
				{`histogram_quantile(0.5, sum by (le, model) (rate(wardrop_proxy_first_byte_seconds_bucket[5m])))`, "{{model}} p50"},
				{`histogram_quantile(0.99, sum by (le, model) (rate(wardrop_proxy_first_byte_seconds_bucket[5m])))`, "{{model}} p99"},
			}, false},
			{"Expected time of all requests", "s", []Line{{`wardrop_control_plan_objective and on (instance) wardrop_control_leading == 1`, "seconds each second"}}, false},
		}},
		{"Attempts", []Panel{
			{"Outcomes", "reqps", []Line{{`sum by (outcome) (rate(wardrop_proxy_attempts_total[1m]))`, "{{outcome}}"}}, true},
			{"Retries", "reqps", []Line{
				{`sum by (reason) (rate(wardrop_proxy_retries_total[1m]))`, "{{reason}}"},
				{`sum(rate(wardrop_proxy_client_retries_total[1m]))`, "by clients"},
			}, true},
			{"Clients that left, lines the access log lost", "reqps", []Line{
				{`sum by (cluster) (rate(wardrop_proxy_cancelled_total[1m]))`, "{{cluster}}"},
				{`sum by (instance) (rate(wardrop_proxy_access_log_dropped_total[1m]))`, "lost at {{instance}}"},
			}, true},
			{"Tokens", "short", []Line{{`sum by (of) (rate(wardrop_proxy_tokens_total[1m]))`, "{{of}}"}}, false},
		}},
		{"Capacity", []Panel{
			{"Replicas and those desired", "none", []Line{
				{`wardrop_control_replicas and on (instance) wardrop_control_leading == 1`, "{{model}} in {{region}}"},
				{`wardrop_control_desired_replicas and on (instance) wardrop_control_leading == 1`, "{{model}} in {{region}}, desired"},
			}, false},
			{"Demand that is expected", "reqps", []Line{{`sum by (cluster, model) (wardrop_control_demand_rate and on (instance) wardrop_control_leading == 1)`, "{{model}} at {{cluster}}"}}, true},
			{"How wrong it was", "percentunit", []Line{{`max by (cluster, model) (wardrop_control_demand_missed)`, "{{model}} at {{cluster}}"}}, false},
		}},
	}}
}

func engines() Dashboard {
	return Dashboard{"wardrop-engines", "Wardrop: engines", []Row{
		{"Load", []Panel{
			{"Load over capacity", "percentunit", []Line{{`max by (engine) (wardrop_control_engine_load / wardrop_control_engine_capacity)`, "{{engine}}"}}, false},
			{"Price of one more unit of work", "s", []Line{{`max by (engine) (wardrop_control_engine_price_seconds)`, "{{engine}}"}}, false},
			{"In flight", "none", []Line{{`sum by (engine) (wardrop_proxy_in_flight)`, "{{engine}}"}}, true},
			{"Weights", "percentunit", []Line{{`max by (cluster, model, engine) (wardrop_proxy_weight)`, "{{model}} at {{cluster}}: {{engine}}"}}, true},
		}},
		{"Trouble", []Panel{
			{"Penalties", "s", []Line{{`max by (engine) (wardrop_proxy_penalty_seconds)`, "{{engine}}"}}, false},
			{"Slower than the profile", "none", []Line{{`max by (engine) (wardrop_control_engine_slowdown)`, "{{engine}}"}}, false},
			{"Doubt of profiles that are learned", "percentunit", []Line{{`max by (engine) (wardrop_control_engine_doubt)`, "{{engine}}"}}, false},
			{"Failures", "reqps", []Line{{`sum by (engine, outcome) (rate(wardrop_proxy_attempts_total{outcome!="success"}[1m]))`, "{{engine}} {{outcome}}"}}, true},
		}},
		{"Reading them", []Panel{
			{"Age of the newest reading", "s", []Line{{`max by (engine) (wardrop_signals_age_seconds)`, "{{engine}}"}}, false},
			{"Reads", "ops", []Line{
				{`sum by (outcome) (rate(wardrop_signals_reads_total[1m]))`, "{{outcome}}"},
				{`sum by (outcome) (rate(wardrop_signals_in_band_total[1m]))`, "in band, {{outcome}}"},
			}, true},
			{"What was wrong with answers", "ops", []Line{{`sum by (fault) (rate(wardrop_signals_faults_total[5m]))`, "{{fault}}"}}, true},
			{"Engines by kind", "none", []Line{{`sum by (kind) (wardrop_signals_engines)`, "{{kind}}"}}, true},
		}},
	}}
}

func controlPlane() Dashboard {
	return Dashboard{"wardrop-control", "Wardrop: control plane", []Row{
		{"Leadership", []Panel{
			{"Who leads", "none", []Line{{`wardrop_control_leading`, "{{instance}}"}}, true},
			{"Epoch and version", "none", []Line{{`wardrop_control_epoch`, "epoch at {{instance}}"}, {`wardrop_control_plan_version`, "version at {{instance}}"}}, false},
			{"Data planes that report", "none", []Line{{`wardrop_control_data_planes`, "{{cluster}} at {{instance}}"}}, false},
			{"Overrides", "none", []Line{{`max by (kind) (wardrop_control_overrides)`, "{{kind}}"}}, false},
		}},
		{"Plans", []Panel{
			{"Time of a tick", "s", []Line{
				{`histogram_quantile(0.5, sum by (le) (rate(wardrop_control_tick_seconds_bucket[5m])))`, "p50"},
				{`histogram_quantile(0.99, sum by (le) (rate(wardrop_control_tick_seconds_bucket[5m])))`, "p99"},
			}, false},
			{"Age of the plan in force", "s", []Line{{`wardrop_control_plan_age_seconds and on (instance) wardrop_control_leading == 1`, "{{instance}}"}}, false},
			{"Certified gap", "percentunit", []Line{{`wardrop_control_plan_gap`, "{{instance}}"}}, false},
			{"Held back, taken back, none", "none", []Line{
				{`max by (rail) (wardrop_control_hold)`, "held: {{rail}}"}, {`max(wardrop_control_plan_fallback)`, "fallback"},
				{`sum(increase(wardrop_control_rollbacks_total[10m]))`, "roll-backs"}, {`sum(increase(wardrop_control_plan_failures_total[10m]))`, "ticks without a plan"},
			}, false},
		}},
		{"At the data planes", []Panel{
			{"Snapshot in force", "none", []Line{{`wardrop_proxy_snapshot_epoch`, "epoch at {{instance}}"}, {`wardrop_proxy_snapshot_version`, "version at {{instance}}"}}, false},
			{"Its age", "s", []Line{{`wardrop_proxy_snapshot_age_seconds`, "{{instance}}"}}, false},
			{"What age has taken", "percentunit", []Line{{`wardrop_proxy_snapshot_aged`, "{{instance}}"}, {`wardrop_proxy_snapshot_stale`, "{{instance}}, stale"}}, false},
		}},
		{"Relays", []Panel{
			{"Upstreams", "none", []Line{{`wardrop_relay_upstreams`, "{{instance}}, connected {{connected}}"}}, true},
			{"Snapshots served", "none", []Line{
				{`max by (instance) (wardrop_relay_epoch)`, "epoch at {{instance}}"}, {`max by (instance) (wardrop_relay_version)`, "version at {{instance}}"},
				{`sum by (instance) (wardrop_relay_refused)`, "refused at {{instance}}"},
			}, false},
			{"Their age", "s", []Line{{`max by (instance) (wardrop_relay_age_seconds)`, "{{instance}}"}}, false},
			{"Clients and reports", "none", []Line{
				{`wardrop_relay_clients`, "clients of {{instance}}"}, {`wardrop_relay_reporting`, "reporting to {{instance}}"},
				{`rate(wardrop_relay_reports_total[1m])`, "reports/s of {{instance}}"},
			}, false},
		}},
		{"Discovery", []Panel{
			{"Engines by source", "none", []Line{
				{`max by (source) (wardrop_discover_engines)`, "{{source}}"}, {`max by (source) (wardrop_discover_held)`, "{{source}}, held"},
				{`max by (source) (wardrop_discover_refused)`, "{{source}}, refused"},
			}, false},
			{"Looks", "ops", []Line{
				{`sum by (source, outcome) (rate(wardrop_discover_refreshes_total[5m]))`, "{{source}}, {{outcome}}"},
				{`sum by (outcome) (rate(wardrop_discover_model_reads_total[5m]))`, "models, {{outcome}}"},
			}, false},
			{"Age of the last good look", "s", []Line{{`max by (source) (wardrop_discover_age_seconds)`, "{{source}}"}}, false},
			{"Models that are not known", "none", []Line{
				{`max(wardrop_discover_engines_without_models)`, "engines without"}, {`max(wardrop_discover_models_refused)`, "names refused"},
			}, false},
		}},
	}}
}
