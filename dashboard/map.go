package dashboard

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/store"
)

// Map is what flows from where to where, by clusters and regions, in one moment. It is the
// answer of /v1/map and each event of /v1/live. Rates are requests/s; numbers have four
// significant digits.
type Map struct {
	Head
	Model    string        `json:"model"`  // the one that is shown; empty for all
	Models   []ModelFlow   `json:"models"` // all there are
	Totals   Totals        `json:"totals"` // of what is shown
	Regions  []RegionFlow  `json:"regions"`
	Clusters []ClusterFlow `json:"clusters"`
	Flows    []Flow        `json:"flows"`
}

// Head is how the control plane is.
type Head struct {
	Epoch     uint64    `json:"epoch"`
	Version   uint64    `json:"version"`
	Policy    string    `json:"policy"`
	Published time.Time `json:"published,omitzero"`
	Now       time.Time `json:"now"`          // by the control plane's clock
	Tick      number    `json:"tick"`         // seconds between two plans
	GoodFor   number    `json:"good_for"`     // seconds that a plan is trusted
	Took      number    `json:"tick_seconds"` // that the last tick took
	Gap       number    `json:"gap"`
	Leading   bool      `json:"leading"`
	Leader    string    `json:"leader,omitempty"`
	// LeaderAdmin is the leader's admin address, of one that others lead.
	LeaderAdmin string           `json:"leader_admin,omitempty"`
	Trouble     string           `json:"trouble,omitempty"`
	Hold        *guard.Hold      `json:"hold,omitempty"`
	Overrides   []store.Override `json:"overrides"`
}

// ModelFlow is a model's demand.
type ModelFlow struct {
	Name string `json:"name"`
	Rate number `json:"rate"`
	Shed number `json:"shed"`
}

// Totals is all that is shown, summed up.
type Totals struct {
	Rate    number `json:"rate"`
	Shed    number `json:"shed"`
	Seconds number `json:"seconds"` // that an admitted request is expected to take, in the mean
	Engines int    `json:"engines"`
	Live    int    `json:"live"` // of these, in the plan
	Used    int    `json:"used"` // of these, with load
	Full    int    `json:"full"` // of these, at a limit
	Planes  int    `json:"data_planes"`
}

// RegionFlow is a region's engines.
type RegionFlow struct {
	Name     string    `json:"name"`
	At       []float64 `json:"at,omitempty"` // latitude and longitude, if known
	Engines  int       `json:"engines"`      // in the plan
	Away     int       `json:"away"`         // configured or found, but not in the plan
	Full     int       `json:"full"`
	Load     number    `json:"load"`
	Capacity number    `json:"capacity"`
	Price    number    `json:"price"` // seconds: the mean of its engines by load
	Dearest  number    `json:"dearest"`
	// Congestion is the part of Price that the load causes the others, in seconds.
	Congestion number `json:"congestion"`

	used int
}

// ClusterFlow is what arrives at a cluster.
type ClusterFlow struct {
	Name    string    `json:"name"`
	Region  string    `json:"region"`
	At      []float64 `json:"at,omitempty"`
	Rate    number    `json:"rate"`
	Shed    number    `json:"shed"`
	Seconds number    `json:"seconds"` // that an admitted request is expected to take
	Planes  int       `json:"data_planes"`
}

// Flow is what goes from a cluster to a region: indexes into both lists.
type Flow struct {
	Cluster, Region int
	Rate            number
	Price           number // seconds, in the mean
}

// MarshalJSON writes [cluster, region, rate, price].
func (f Flow) MarshalJSON() ([]byte, error) {
	b := append(strconv.AppendInt([]byte{'['}, int64(f.Cluster), 10), ',')
	b = append(strconv.AppendInt(b, int64(f.Region), 10), ',')
	b = append(f.Rate.append(b), ',')
	return append(f.Price.append(b), ']'), nil
}

func appendFloat(b []byte, x float64) []byte { return strconv.AppendFloat(b, x, 'g', 4, 64) }

// mapOf draws the map of a model, or of all if that is empty.
func mapOf(c *control.Control, s *summary, model string, now time.Time) *Map {
	cfg := c.Config()
	d := &drawing{m: &Map{Head: headOf(c, s, now), Model: model, Models: []ModelFlow{}, Flows: []Flow{}}, s: s, model: model}
	d.clusters(c, cfg, now)
	d.regions(cfg)
	if s != nil {
		d.engines()
		d.flows()
	}
	return d.m
}

func headOf(c *control.Control, s *summary, now time.Time) Head {
	cfg := c.Config()
	h := Head{
		Now: now.Round(0), Tick: number(cfg.Policy.Tick.Seconds()), GoodFor: number(cfg.Control.GoodFor.Seconds()),
		Leading: c.Leading(), Leader: c.Leader(), Overrides: c.Overrides(now),
	}
	if !h.Leading {
		for _, m := range cfg.Control.Members {
			if m.Name == h.Leader {
				h.LeaderAdmin = m.Admin
			}
		}
	}
	if s != nil {
		p := s.state.Plan
		h.Epoch, h.Version, h.Policy, h.Gap = p.Epoch, p.Version, p.Policy, number(p.Gap)
		h.Published, h.Took, h.Trouble, h.Hold = s.state.Published.Round(0), number(s.state.TickTook.Seconds()), s.state.Trouble, s.state.Hold
	}
	return h
}

// drawing is a map in the making.
type drawing struct {
	m     *Map
	s     *summary // nil before the first plan
	model string

	cluster map[string]int // indexes into m.Clusters
	region  map[string]int // and m.Regions
}

func (d *drawing) shows(models []string) bool {
	return d.model == "" || slices.Contains(models, d.model)
}

func (d *drawing) clusters(c *control.Control, cfg *config.Config, now time.Time) {
	d.cluster = map[string]int{}
	d.m.Clusters = make([]ClusterFlow, 0, len(cfg.Clusters))
	for _, cl := range cfg.Clusters {
		d.cluster[cl.Name] = len(d.m.Clusters)
		d.m.Clusters = append(d.m.Clusters, ClusterFlow{Name: cl.Name, Region: cl.Region, At: cfg.Place(cl.Region)})
	}
	for _, p := range c.DataPlanes(now) {
		if i, ok := d.cluster[p.Cluster]; ok {
			d.m.Clusters[i].Planes++
			d.m.Totals.Planes++
		}
	}
}

// regions lists those of engines, whether the plan has them or not.
func (d *drawing) regions(cfg *config.Config) {
	d.region = map[string]int{}
	add := func(name string) int {
		i, ok := d.region[name]
		if !ok {
			i = len(d.m.Regions)
			d.region[name] = i
			d.m.Regions = append(d.m.Regions, RegionFlow{Name: name, At: cfg.Place(name)})
		}
		return i
	}
	d.m.Regions = []RegionFlow{}
	var names []string
	for i := range cfg.Engines {
		if d.shows(cfg.Engines[i].Models) {
			names = append(names, cfg.Engines[i].Region)
			d.m.Totals.Engines++
		}
	}
	away := map[string]int{}
	for _, name := range names {
		away[name]++
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		d.m.Regions[add(name)].Away = away[name]
	}
	if d.s == nil {
		return
	}
	for i, n := range d.s.region {
		if n >= 0 && d.shows(d.s.models[i]) {
			add(d.s.regions[n])
		}
	}
}

// engines sums the plan's engines up by region.
func (d *drawing) engines() {
	plan := d.s.state.Plan
	for i := range plan.Engines {
		e := &plan.Engines[i]
		if d.s.region[i] < 0 || !d.shows(d.s.models[i]) {
			continue
		}
		r := &d.m.Regions[d.region[d.s.regions[d.s.region[i]]]]
		r.Engines++
		r.Load += number(e.Load)
		r.Capacity += number(e.Capacity)
		r.Price += number(e.Load * e.Price())
		r.Congestion += number(e.Load * (e.Congestion + e.Cap))
		if e.Load > 0 {
			r.used++
			r.Dearest = max(r.Dearest, number(e.Price()))
		}
		if e.Full() {
			r.Full++
		}
	}
	for i := range d.m.Regions {
		r := &d.m.Regions[i]
		r.Away = max(0, r.Away-r.Engines)
		if r.Load > 0 {
			r.Price /= r.Load
			r.Congestion /= r.Load
		} else {
			r.Price, r.Congestion = 0, 0
		}
		d.m.Totals.Live, d.m.Totals.Used, d.m.Totals.Full = d.m.Totals.Live+r.Engines, d.m.Totals.Used+r.used, d.m.Totals.Full+r.Full
	}
}

// flows sums the rows up by cluster and region.
func (d *drawing) flows() {
	n := len(d.m.Regions)
	rate, price := make([]float64, len(d.m.Clusters)*n), make([]float64, len(d.m.Clusters)*n)
	seconds, models := make([]float64, len(d.m.Clusters)), map[string]*ModelFlow{}
	for i := range d.s.rows {
		r := &d.s.rows[i]
		m := models[r.key[1]]
		if m == nil {
			m = &ModelFlow{Name: r.key[1]}
			models[m.Name] = m
		}
		m.Rate, m.Shed = m.Rate+number(r.rate), m.Shed+number(r.shed)
		c, ok := d.cluster[r.key[0]]
		if !ok || d.model != "" && d.model != r.key[1] {
			continue
		}
		cluster := &d.m.Clusters[c]
		cluster.Rate, cluster.Shed = cluster.Rate+number(r.rate), cluster.Shed+number(r.shed)
		for _, p := range r.regions {
			at, flow := c*n+d.region[d.s.regions[p.region]], (r.rate-r.shed)*p.weight
			rate[at] += flow
			price[at] += flow * p.price
			seconds[c] += flow * p.seconds
		}
	}
	for at, x := range rate {
		if x > 0 {
			d.m.Flows = append(d.m.Flows, Flow{at / n, at % n, number(x), number(price[at] / x)})
		}
	}
	d.total(seconds)
	for _, m := range models {
		d.m.Models = append(d.m.Models, *m)
	}
	slices.SortFunc(d.m.Models, func(a, b ModelFlow) int { return cmp.Compare(a.Name, b.Name) })
}

func (d *drawing) total(seconds []float64) {
	t := &d.m.Totals
	for i := range d.m.Clusters {
		c := &d.m.Clusters[i]
		t.Rate, t.Shed, t.Seconds = t.Rate+c.Rate, t.Shed+c.Shed, t.Seconds+number(seconds[i])
		if admitted := c.Rate - c.Shed; admitted > 0 {
			c.Seconds = number(seconds[i]) / admitted
		}
	}
	if admitted := t.Rate - t.Shed; admitted > 0 {
		t.Seconds /= admitted
	}
}
