package control

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/tick"
)

// reportLease is how long a data plane's report counts: one that is silent
// for longer is gone, and so is its part of the demand.
const reportLease = 10 * time.Second

// reports holds the newest report of each data plane. Safe for concurrent use.
type reports struct {
	mu     sync.Mutex
	planes map[string]tick.Report // by instance
}

func newReports() *reports { return &reports{planes: map[string]tick.Report{}} }

// add keeps a report unless a newer one of the same instance was here before.
func (r *reports) add(report *pb.ReportRequest, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.planes[report.Instance]
	if known && old.Sequence >= report.Sequence {
		return
	}
	if known && report.Partial {
		keepReadings(report, old)
	}
	r.planes[report.Instance] = tick.Report{ReportRequest: report, Received: now}
}

// keepReadings adds the readings of the report before that are not old and have not been
// replaced.
func keepReadings(report *pb.ReportRequest, old tick.Report) {
	fresh := make(map[string]bool, len(report.Readings))
	for _, x := range report.Readings {
		fresh[x.Engine] = true
	}
	for _, x := range old.Readings {
		if !fresh[x.Engine] && report.Time.AsTime().Sub(x.Time.AsTime()) <= tick.ReadingLease {
			report.Readings = append(report.Readings, x)
		}
	}
}

// live lists the reports within their lease, sorted by cluster and instance, and
// forgets the others.
func (r *reports) live(now time.Time) []tick.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.planes, func(_ string, p tick.Report) bool { return now.Sub(p.Received) > reportLease })
	return slices.SortedFunc(maps.Values(r.planes), func(a, b tick.Report) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Instance, b.Instance))
	})
}
