package incident_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// until plays healthy time until a time of the day.
func (s *shop) until(hour, minute int) {
	const day = 24 * time.Hour
	at := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute
	s.epoch = time.Minute // a day is long
	s.play((at-time.Duration(s.now)%day+day)%day, nil)
	s.epoch = epoch
}

// TestOperation makes a rare operation take half as long again, which costs all requests a thirtieth of their time. It
// raises an incident once the operation has been known for a day. A smaller fault of the first day is in its record.
func TestOperation(t *testing.T) {
	for _, saves := range []bool{false, true} {
		s := newShop()
		s.saves, s.rare = saves, 6
		s.epoch = time.Minute // a day is long
		s.play(3*time.Hour, nil)
		s.play(10*time.Minute, map[string]float64{"rare": 1.35})
		s.play(22*time.Hour, nil)
		s.epoch = epoch
		if got := s.summary(0); got != nil {
			t.Errorf("within a day: %v", got)
		}
		fault := s.now
		s.play(20*time.Minute, map[string]float64{"rare": 2})
		s.play(20*time.Minute, nil)
		if diff := cmp.Diff([]string{"rare 1m20s to 22m40s"}, s.summary(fault)); diff != "" {
			t.Errorf("after a day (-want +got):\n%s", diff)
		}
	}
}

// TestWhole slows a service down whose operations are called too rarely to be judged separately. All of its calls
// together raise an incident once the service has been known for a day.
func TestWhole(t *testing.T) {
	s := newShop()
	s.rare, s.routes = 8, 12
	s.epoch = time.Minute // a day is long
	s.play(25*time.Hour, nil)
	s.epoch = epoch
	if got := s.summary(0); got != nil {
		t.Errorf("healthy: %v", got)
	}
	fault := s.now
	s.play(20*time.Minute, map[string]float64{"rare": 1.3})
	s.play(20*time.Minute, nil)
	if diff := cmp.Diff([]string{"rare 1m20s to 22m20s"}, s.summary(fault)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNightlyJob slows a service down at the same time of every day. After two nights this is a habit; at another time
// the same slowdown is an incident.
func TestNightlyJob(t *testing.T) {
	s := newShop()
	job := func() {
		s.until(2, 10)
		s.play(30*time.Minute, map[string]float64{"cart": 2})
	}
	for range 5 {
		job()
	}
	s.until(10, 0)
	s.play(10*time.Minute, map[string]float64{"cart": 2})
	s.play(10*time.Minute, nil)
	var days []string
	for _, x := range s.tracker.Incidents() {
		days = append(days,
			fmt.Sprintf("day %d, %02d h", x.Opened()/trace.Nanos(24*time.Hour), x.Opened()/trace.Nanos(time.Hour)%24))
	}
	if diff := cmp.Diff([]string{"day 0, 02 h", "day 1, 02 h", "day 4, 10 h"}, days); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestComesAndGoes makes a service slow for two of every seven minutes, for an hour. That is one incident.
func TestComesAndGoes(t *testing.T) {
	s := newShop()
	s.rare = 12
	s.play(26*time.Hour, nil)
	fault := s.now
	for range 9 {
		s.play(2*time.Minute, map[string]float64{"rare": 3})
		s.play(5*time.Minute, nil)
	}
	s.play(2*time.Hour, nil)
	got := s.summary(fault)
	if len(got) != 1 || !strings.HasPrefix(got[0], "rare ") || !strings.Contains(got[0], " to ") {
		t.Errorf("incidents %v, want one of rare that ends", got)
	}
	if end := s.tracker.Incidents()[0].End().Sub(fault); end < 50*time.Minute || end > 90*time.Minute {
		t.Errorf("ended after %v", end)
	}
}

// savedWeek is a shop that was healthy for eight days, with its state encoded. All tests of leaks start with it.
var savedWeek = sync.OnceValue(func() (saved struct {
	shop
	history []byte
	tracker incident.SavedTracker
},
) {
	s := newShop()
	s.spacing, s.epoch = 5*time.Second, time.Minute // eight days are long
	s.play(8*24*time.Hour, nil)
	saved.shop, saved.history, saved.tracker = *s, s.sites.AppendBinary(nil), s.tracker.Save()
	saved.epoch = epoch
	return saved
})

// healthyWeek returns a shop that has been healthy for eight days.
func healthyWeek(t *testing.T) *shop {
	t.Helper()
	saved := savedWeek()
	s := saved.shop
	sites, err := history.DecodeSites(saved.history, s.table)
	if err != nil {
		t.Fatal(err)
	}
	s.sites, s.tracker = compare.NewComparer(sites), incident.Restore(saved.tracker)
	return &s
}

// TestLeak makes a service slower by 5 or by 1 % per hour. The leak is found by comparison with the week before, and
// before the service takes half as long again, because its growth doesn't become usual.
func TestLeak(t *testing.T) {
	for _, rate := range []float64{1.05, 1.01} {
		s := healthyWeek(t)
		fault, factor := s.now, 1.0
		for factor < 1.5 && len(s.tracker.Incidents()) == 0 {
			factor *= rate
			s.play(time.Hour, map[string]float64{"cart": factor})
		}
		all := s.tracker.Incidents()
		if len(all) != 1 || all[0].Weeks != 1 || s.table.Text(all[0].Suspects[0].Service) != "cart" {
			t.Fatalf("%v an hour: incidents %v, raised at a factor of %.2f", rate, s.summary(fault), factor)
		}
		t.Logf("%v an hour: raised at a factor of %.2f", rate, factor)
		s.play(6*time.Hour, nil)
		if got := s.summary(fault); len(got) != 1 || !strings.Contains(got[0], " to ") {
			t.Errorf("%v an hour, after the leak: %v", rate, got)
		}
	}
}

// TestLeakOfFirstDay makes a service slower by 20 % per hour, after two healthy hours. The incident opens although the
// service was also slower in the hours just before.
func TestLeakOfFirstDay(t *testing.T) {
	s := newShop()
	s.play(2*time.Hour, nil)
	factor := 1.0
	for factor < 1.6 && len(s.tracker.Incidents()) == 0 {
		factor *= math.Pow(1.2, 1./12)
		s.play(5*time.Minute, map[string]float64{"cart": factor})
	}
	if got := s.summary(0); len(got) != 1 || !strings.HasPrefix(got[0], "cart ") || factor >= 1.5 {
		t.Errorf("incidents %v at a factor of %.2f, want one of cart before 1.5", got, factor)
	}
}

// TestLeakOfFirstMinutes makes a service slower from the first minute on, so it also becomes slower throughout its
// history. The incident lasts as long as the service is slow.
func TestLeakOfFirstMinutes(t *testing.T) {
	growing := func(age time.Duration) float64 { return math.Pow(1.2, age.Hours()) }
	doubling := func(age time.Duration) float64 { return 1 + min(1, age.Minutes()/35) }
	for _, x := range []struct {
		name   string
		factor func(age time.Duration) float64
		before float64 // must be raised before its factor exceeds this
		slow   string
		stays  time.Duration // slow
	}{
		{"20 % an hour", growing, 1.5, "cart", 26 * time.Hour},
		{"20 % an hour, after a slow start", func(age time.Duration) float64 {
			return growing(age) * (1 + 2*math.Exp(-age.Minutes()/2))
		}, 1.5, "cart", time.Hour},
		{"twice after 35 minutes", doubling, 2.01, "cart", 4 * time.Hour},
		{"20 % an hour, a service with few calls", growing, 1.5, "rare", time.Hour},
	} {
		s := newShop()
		if x.slow == "rare" {
			s.rare = 2
		}
		factor, started := 1.0, s.now
		for age := time.Duration(0); age < 3*time.Hour && len(s.tracker.Incidents()) == 0; age = s.now.Sub(started) {
			factor = x.factor(age)
			s.play(time.Minute, map[string]float64{x.slow: factor})
		}
		t.Logf("%s: raised at a factor of %.2f after %v", x.name, factor, s.now.Sub(started))
		if got := s.summary(0); len(got) != 1 || !strings.HasPrefix(got[0], x.slow+" ") || factor >= x.before {
			t.Errorf("%s: incidents %v at a factor of %.2f, want one of %s before %.1f",
				x.name, got, factor, x.slow, x.before)
			continue
		}
		s.saves, s.epoch = true, time.Minute // a day is long
		s.play(x.stays, map[string]float64{x.slow: factor})
		if all := s.tracker.Incidents(); len(all) != 1 || !all[0].IsOpen() {
			t.Errorf("%s, %v later: %v, want one that is open", x.name, x.stays, s.summary(0))
		}
		s.play(time.Hour, nil)
		if got := s.summary(0); len(got) != 1 || !strings.Contains(got[0], " to ") {
			t.Errorf("%s, after the leak: %v", x.name, got)
		}
	}
}

// TestHealthyFirstDay starts services that are slow in their first minutes, lets requests move from one type to
// another, and makes all services slower with the traffic of the day. That isn't an incident.
func TestHealthyFirstDay(t *testing.T) {
	s := newShop()
	s.rare, s.routes = 3, 2
	started := s.now
	for age := time.Duration(0); age < 12*time.Hour; age = s.now.Sub(started) {
		if age == 2*time.Hour {
			s.rare, s.routes = 1, 3
		}
		load := 1.0
		if age > time.Hour {
			load += 0.5 * math.Sin((age-time.Hour).Hours()/11*math.Pi)
		}
		start := 1 + 2*math.Exp(-age.Minutes()/3)
		s.gateway = map[string]trace.Nanos{"cart": trace.Nanos(load * 20e6), "search": trace.Nanos(load * 20e6)}
		s.play(time.Minute, map[string]float64{
			"cart":   start * load,
			"search": start * (1 + 0.8*(load-1)),
			"rare":   start * (1 + 0.6*(load-1)),
		})
	}
	if got := s.summary(0); len(got) > 0 {
		t.Errorf("incidents %v", got)
	}
}

// TestSlowLeak makes a service slower by 1 % per day. It is found by comparison with the days four weeks before. There
// is so little traffic here that windows of minutes raise an incident by chance every week or two.
func TestSlowLeak(t *testing.T) {
	s := newShop()
	s.spacing, s.epoch = 30*time.Second, time.Minute
	const day = 24 * time.Hour
	s.play(32*day, nil)
	monthly := func() *incident.Incident {
		for _, x := range s.tracker.Incidents() {
			if x.Weeks == 4 {
				return &x
			}
		}
		return nil
	}
	factor := 1.0
	for ; factor < 1.5 && monthly() == nil; factor *= 1.01 {
		s.play(day, map[string]float64{"cart": 1.01 * factor})
	}
	if x := monthly(); x == nil || s.table.Text(x.Suspects[0].Service) != "cart" {
		t.Fatalf("incidents %v at a factor of %.2f", s.summary(0), factor)
	}
	t.Logf("raised at a factor of %.2f; incidents %v", factor, s.summary(0))
}

// TestLeakStays keeps a service as slow as it was when a leak was noticed. The incident stays open, because its calls
// are still slower than a week before.
func TestLeakStays(t *testing.T) {
	s := healthyWeek(t)
	factor := 1.0
	for ; factor < 1.5 && len(s.tracker.Incidents()) == 0; factor *= 1.01 {
		s.play(time.Hour, map[string]float64{"cart": 1.01 * factor})
	}
	s.play(12*time.Hour, map[string]float64{"cart": factor})
	if all := s.tracker.Incidents(); len(all) != 1 || all[0].Closed() != 0 || all[0].Reopened() != 0 {
		t.Errorf("incidents %v, want one that stays open", s.summary(0))
	}
}

// TestLeakReturns starts a leak again after the incident has closed. The incident reopens hours later. The time between
// is then its history: without it, every service would look slow.
func TestLeakReturns(t *testing.T) {
	s := healthyWeek(t)
	grow := func(rate float64, until func(x *incident.Incident) bool) {
		for factor := rate; factor < 2; factor *= rate {
			s.play(time.Hour, map[string]float64{"cart": factor})
			if all := s.tracker.Incidents(); len(all) > 0 && until(&all[0]) {
				return
			}
		}
	}
	grow(1.05, func(x *incident.Incident) bool { return true })
	for s.tracker.Incidents()[0].Closed() == 0 {
		s.play(10*time.Second, nil)
	}
	closed := s.now
	grow(1.06, func(x *incident.Incident) bool { return x.Reopened() != 0 })
	all := s.tracker.Incidents()
	if len(all) != 1 || all[0].Reopened().Sub(closed) < 2*time.Hour {
		t.Fatalf("incidents %v, opened again after %v", s.summary(closed), all[0].Reopened().Sub(closed))
	}
	s.play(time.Hour, map[string]float64{"cart": 1.5})
	if got := s.tracker.Incidents(); len(got) != 1 || got[0].Suspects[0].Score > 1 {
		t.Errorf("an hour later: %v", s.summary(closed))
	}
}

// TestStopped stops the requests to a service. That is an incident if they were steady for an hour before. It ends when
// they return.
func TestStopped(t *testing.T) {
	s := newShop()
	s.play(2*time.Hour, nil)
	s.stopped = "cart"
	fault := s.now
	s.play(20*time.Minute, nil)
	s.stopped = ""
	s.play(20*time.Minute, nil)
	if diff := cmp.Diff([]string{"gateway 3m0s to 22m0s"}, s.summary(fault)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	x := s.tracker.Incidents()[0]
	if x.Suspects[0].Silent < 0.9 || x.Onset < fault-trace.Nanos(epoch) || x.Onset > fault+trace.Nanos(epoch) {
		t.Errorf("silent %.2f, onset %v after the last request", x.Suspects[0].Silent, x.Onset.Sub(fault))
	}
}

// TestConsumerStops stops the requests whose messages a worker takes. Both
// lack requests for the same reason, so there is one incident, and the worker is no suspect.
func TestConsumerStops(t *testing.T) {
	s := newShop()
	s.consumer = true
	s.play(2*time.Hour, nil)
	s.stopped = "cart"
	fault := s.now
	s.play(20*time.Minute, nil)
	if got := s.summary(fault); len(got) != 1 || !strings.HasPrefix(got[0], "gateway ") {
		t.Fatalf("got incidents %q, want one of the gateway", got)
	}
	suspects := s.tracker.Incidents()[0].Suspects
	if len(suspects) > 1 && suspects[1].Score > 0 {
		t.Errorf("got suspects %+v, want the gateway alone", suspects)
	}
	if rate := suspects[0].Operations[0].Stopped; rate < 0.9 || rate > 1.1 {
		t.Errorf("%g requests per second came before, want 1", rate)
	}
}

// TestConsumerOfFailedRequests makes a service stop answering, so that a worker gets no messages from its requests. The
// worker is silent for the same reason, which is noticed minutes later and is no incident of its own.
func TestConsumerOfFailedRequests(t *testing.T) {
	s := newShop()
	s.consumer = true
	s.play(2*time.Hour, nil)
	fault := s.now
	s.silent, s.consumer = "cart", false
	s.play(20*time.Minute, nil)
	if got := s.summary(fault); len(got) != 1 || !strings.HasPrefix(got[0], "cart ") {
		t.Fatalf("got incidents %q, want one of cart", got)
	}
	s.silent, s.consumer = "", true
	s.play(20*time.Minute, nil)
	if got := s.summary(fault); len(got) != 1 || !strings.Contains(got[0], " to 22m") {
		t.Errorf("got incidents %q, want one that has ended", got)
	}
}

// TestRareStops stops a request type with four requests a minute. It is silent after five minutes, unless the traffic
// of all types drops to a quarter: then we expect only one of its requests per minute.
func TestRareStops(t *testing.T) {
	for _, c := range []struct {
		spacing time.Duration
		silent  bool
	}{{time.Second, true}, {4 * time.Second, false}} {
		s := newShop()
		s.rare = 15
		s.play(2*time.Hour, nil)
		s.rare, s.spacing = 0, c.spacing
		s.play(15*time.Minute, nil)
		if got := s.summary(0); (len(got) > 0) != c.silent {
			t.Errorf("a request every %v: incidents %v", c.spacing, got)
		}
	}
}

// TestJobEnds stops requests that came for fifty minutes, and others that came for a minute in half an hour. Neither
// kind was steady, so there is no incident.
func TestJobEnds(t *testing.T) {
	s := newShop()
	s.stopped = "cart"
	s.play(2*time.Hour, nil)
	s.stopped = ""
	s.play(50*time.Minute, nil)
	s.stopped = "cart"
	s.play(time.Hour, nil)
	for range 4 {
		s.stopped = ""
		s.play(time.Minute, nil)
		s.stopped = "cart"
		s.play(29*time.Minute, nil)
	}
	s.play(time.Hour, nil)
	if got := s.summary(0); got != nil {
		t.Errorf("incidents %v", got)
	}
}

// TestWarmUp replaces the pods of a service. The new pods are slow for a few minutes, which isn't an incident.
func TestWarmUp(t *testing.T) {
	s := newShop()
	s.rare = 12
	s.play(26*time.Hour, nil)
	s.pods = 4
	s.play(4*time.Minute, map[string]float64{"rare": 1.35})
	s.play(20*time.Minute, nil)
	if got := s.summary(0); got != nil {
		t.Errorf("incidents %v", got)
	}
}

// TestSkippedCall makes a service stop calling another one. Nothing is slower and nothing fails, so that isn't an
// incident, but only a note.
func TestSkippedCall(t *testing.T) {
	s := newShop()
	s.extra = true
	s.play(time.Hour, nil)
	s.extra = false
	skipped := s.now
	s.play(6*time.Minute, nil)
	if all := s.tracker.ChangedCalls(); len(all) != 1 || s.table.Text(all[0].Service) != "cart" ||
		all[0].Since.Sub(skipped).Abs() > time.Minute || all[0].Share < 0.4 {
		t.Errorf("changed calls %+v, want those of half of the requests, by cart", all)
	}
	if got := s.summary(0); got != nil {
		t.Errorf("incidents %v", got)
	}
}

// TestDeploy deploys a version of a service that calls another service for the first time, whether or not the version
// is known. That alone isn't an incident, and a quarter of an hour later the service is watched as closely as before.
func TestDeploy(t *testing.T) {
	for _, version := range []string{"1", "2"} {
		s := newShop()
		s.version = "1"
		s.play(time.Hour, nil)
		s.extra, s.version = true, version
		deployed := s.now
		s.play(6*time.Minute, nil)
		if all := s.tracker.ChangedCalls(); len(all) != 1 || s.table.Text(all[0].Service) != "cart" ||
			all[0].Since.Sub(deployed).Abs() > time.Minute || all[0].Share < 0.4 {
			t.Errorf("version %s: changed calls %+v, want those of half of the requests, by cart", version, all)
		}
		s.play(9*time.Minute, nil)
		if all := s.tracker.ChangedCalls(); len(all) > 0 {
			t.Errorf("version %s: changed calls %+v a quarter of an hour later", version, all)
		}
		if got := s.summary(0); got != nil {
			t.Errorf("version %s: incidents %v", version, got)
		}
		fault := s.now
		s.play(10*time.Minute, map[string]float64{"cart": 1.5})
		if diff := cmp.Diff([]string{"cart 2m20s"}, s.summary(fault)); diff != "" {
			t.Errorf("version %s (-want +got):\n%s", version, diff)
		}
	}
}
