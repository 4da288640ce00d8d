package incident

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	// gathering is the maximum time between the openings of two incidents whose common cause may be a place. It is long
	// because services with few requests show the cause later.
	gathering = 5 * time.Minute
	// maxGathered is the maximum number of suspects that are compared by place.
	maxGathered = 50
)

// gather joins the open incidents whose services are slow in the same node or zone, because that place is their common
// cause. f is the comparison of the window that ends now.
func (t *Tracker) gather(now trace.Nanos, f *finding, comparer *compare.Comparer) {
	first := slices.IndexFunc(t.incidents, func(x *tracked) bool { return x.gathers(now) })
	if first < 0 {
		return
	}
	ratio := t.baseline.ratio(comparer.Services.Len())
	var suspects []*compare.Suspect
	for i := range f.Suspects {
		if len(suspects) == maxGathered {
			break
		}
		s := &f.Suspects[i]
		if t.incidents.openOf(s.Service) != nil || t.baseline.unusual(s, f.Requests, ratio, keeping) {
			suspects = append(suspects, s)
		}
	}
	place := comparer.Shared(f.window, &f.Comparison, suspects)
	if len(place.Services) == 0 {
		return
	}
	var of *tracked // the oldest incident of these services
	t.incidents = slices.DeleteFunc(t.incidents, func(y *tracked) bool {
		if !place.Has(y.service) || !y.gathers(now) && !y.isIn(&place) {
			return false
		}
		if of == nil {
			of = y
			return false
		}
		return of.absorb(now, y)
	})
	if of != nil && len(place.Services) >= len(of.Shared.Services) {
		of.Shared = place
	}
}

// gathers reports whether the cause of x may be a place shared with other incidents.
func (x *tracked) gathers(now trace.Nanos) bool {
	return x.IsOpen() && !x.unexplained() && now.Sub(x.LastOpened()) <= gathering
}

// isIn reports whether x is open and place is already known to be its cause. If so, services that become slow there
// belong to x, however late.
func (x *tracked) isIn(place *compare.SharedPlace) bool {
	return x.IsOpen() && len(x.Shared.Services) > 0 && x.Shared.Key == place.Key && x.Shared.Value == place.Value
}

// showPlace lists the shared place first among the instances of each suspect that is slow there.
func (x *tracked) showPlace() {
	for i := range x.Suspects {
		s := &x.Suspects[i]
		k := slices.IndexFunc(x.Shared.Services, func(p compare.ServicePart) bool { return p.Service == s.Service })
		if k < 0 {
			continue
		}
		part := x.Shared.Services[k].InstancePart
		rest := slices.DeleteFunc(slices.Clone(s.Instances),
			func(p compare.InstancePart) bool { return p.Key == part.Key })
		s.Instances = append([]compare.InstancePart{part}, rest...)
	}
}
