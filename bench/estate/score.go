package estate

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// grace is the time after a window in which an incident still counts for its fault. Suspects are judged at its end.
const grace = time.Minute

// Target names the faulty service of a case.
type Target struct {
	Service string `json:"service"`
	Detail  string `json:"detail,omitempty"`
}

// Case is a fault with the verdict on the incidents of its window.
type Case struct {
	Name           string   `json:"name"`
	Fault          string   `json:"fault"`
	Target         Target   `json:"target"`
	Strength       string   `json:"strength"`
	StartUnixNano  int64    `json:"start_unix_nano"`
	EndUnixNano    int64    `json:"end_unix_nano"`
	Raised         bool     `json:"raised"`
	SecondsToRaise *float64 `json:"seconds_to_raise"` // from the start of the window to the first incident, or nil
	RankService    *int     `json:"rank_service"`     // among the distinct services of that incident; nil if absent
	Suspects       []string `json:"suspects"`         // the distinct services of that incident; not nil
	Requests       int      `json:"requests"`         // sent in the window through the faulty service
	Failed         int      `json:"failed"`           // among them
	MeanMS         float64  `json:"mean_ms"`
	HealthyMeanMS  float64  `json:"healthy_mean_ms"` // of such requests outside of all windows

	Addresses string `json:"addresses"` // by which programs call each other: ip or name
	// the state of the service in sibyl's API at the end of the window, with the reason
	Seen     string `json:"seen"`
	Sentence string `json:"sentence"` // of that incident; "" if not raised
	// sentences of incidents that had opened before and were open in the window; not nil
	Open []string `json:"open"`

	accept []string // names of the faulty service
}

// Report is the result of a run.
type Report struct {
	Cases          []Case     `json:"cases"`           // not nil
	Raised         float64    `json:"raised"`          // fraction of the cases, as Top1 and Top3 are
	Top1           float64    `json:"top1"`            // the right service is the first suspect
	Top3           float64    `json:"top3"`            // or among the first three
	FalseIncidents int        `json:"false_incidents"` // outside of all windows, or not the first one of its window
	HealthyHours   float64    `json:"healthy_hours"`   // after learning, outside of all windows and their grace
	False          []Incident `json:"false"`           // not nil
	Changing       []Incident `json:"changing"`        // while the programs started again with other addresses; not nil
	Skipped        []Skipped  `json:"skipped"`         // not nil
	Requests       int        `json:"requests"`
	FailedHealthy  int        `json:"failed_healthy"` // requests that failed outside of all windows
}

// period is a time of the run. The zero value covers nothing.
type period struct{ start, end time.Time }

// covers reports whether t, in ns, is within the period or the grace after it.
func (p period) covers(t int64) bool {
	return !p.end.IsZero() && t >= p.start.UnixNano() && t <= p.end.Add(grace).UnixNano()
}

// length returns the duration of p with the grace, or 0 if p is the zero value.
func (p period) length() time.Duration {
	if p.end.IsZero() {
		return 0
	}
	return p.end.Sub(p.start) + grace
}

// incidentLog collects the incidents over time.
type incidentLog struct {
	last      map[string]Incident             // as seen last, by ID
	judgement map[string]map[string][]Suspect // suspects as judged, by case and incident
}

func newIncidentLog() *incidentLog {
	return &incidentLog{last: make(map[string]Incident), judgement: make(map[string]map[string][]Suspect)}
}

// add adds the incidents seen at time now. For each case whose judgement is not due yet, it keeps the suspects of open
// incidents.
func (l *incidentLog) add(now int64, incidents []Incident, cases []Case) {
	for _, x := range incidents {
		before, known := l.last[x.ID]
		if len(x.Suspects) == 0 && known {
			x.Suspects = before.Suspects
		}
		l.last[x.ID] = x
		for i := range cases {
			c := &cases[i]
			_, judged := l.judgement[c.Name][x.ID]
			if !c.covers(x.Opened) || judged && (now > c.due() || before.Closed != nil) {
				continue
			}
			if l.judgement[c.Name] == nil {
				l.judgement[c.Name] = make(map[string][]Suspect)
			}
			l.judgement[c.Name][x.ID] = x.Suspects
		}
	}
}

// due returns the time at which the suspects of a case are judged.
func (c *Case) due() int64 { return c.EndUnixNano + grace.Nanoseconds() }

// covers reports whether an incident that opened at the given time counts for the case.
func (c *Case) covers(opened int64) bool { return opened >= c.StartUnixNano && opened <= c.due() }

// score judges the cases. Incidents during the change of addresses don't count. learned and ended are the ends of the
// learning period and of the run.
func (l *incidentLog) score(cases []Case, change period, learned, ended time.Time) Report {
	r := Report{Cases: cases, False: []Incident{}, Changing: []Incident{}, Skipped: []Skipped{}}
	if r.Cases == nil {
		r.Cases = []Case{}
	}
	var incidents []Incident
	for _, x := range l.last {
		incidents = append(incidents, x)
	}
	slices.SortFunc(incidents, func(a, b Incident) int { return int(min(1, max(-1, a.Opened-b.Opened))) })
	for _, x := range incidents {
		for k := range cases {
			cases[k].noteOpen(&x)
		}
		if change.covers(x.Opened) {
			r.Changing = append(r.Changing, x)
			continue
		}
		i := slices.IndexFunc(cases, func(c Case) bool { return c.covers(x.Opened) })
		if i < 0 || cases[i].Raised {
			r.False = append(r.False, x)
			continue
		}
		cases[i].raise(&x, l.judgement[cases[i].Name][x.ID])
	}
	healthy := ended.Sub(learned) - change.length()
	top := make([]int, 4)
	raised := 0
	for i := range cases {
		c := &cases[i]
		healthy -= time.Duration(min(c.due(), ended.UnixNano()) - c.StartUnixNano)
		if c.Open == nil {
			c.Open = []string{}
		}
		if c.Suspects == nil {
			c.Suspects = []string{}
		}
		if c.Raised {
			raised++
		}
		if c.RankService != nil {
			top[min(*c.RankService, 4)-1]++
		}
	}
	n := float64(max(1, len(cases)))
	r.Raised, r.Top1, r.Top3 = float64(raised)/n, float64(top[0])/n, float64(top[0]+top[1]+top[2])/n
	r.FalseIncidents, r.HealthyHours = len(r.False), max(0, healthy.Hours())
	return r
}

// noteOpen notes an incident that had opened before the window and was open in it.
func (c *Case) noteOpen(x *Incident) {
	if x.Opened < c.StartUnixNano && (x.Closed == nil || *x.Closed > c.StartUnixNano) {
		c.Open = append(c.Open, x.Sentence)
	}
}

// missed returns the reason why a fault was not raised, or not named first: its effect on requests and the state of the
// service in Sibyl. It is empty for a fault that was named first.
func (c *Case) missed() string {
	var why []string
	switch {
	case !c.Raised:
		why = append(why, "not raised")
	case c.RankService == nil:
		why = append(why, "not named by: "+c.Sentence)
	case *c.RankService > 1:
		why = append(why, fmt.Sprintf("named %d. by: %s", *c.RankService, c.Sentence))
	default:
		return ""
	}
	why = append(why, fmt.Sprintf("%d of %d requests failed, mean %.0f ms, healthy %.0f ms",
		c.Failed, c.Requests, c.MeanMS, c.HealthyMeanMS),
		"sibyl on "+c.Target.Service+": "+c.Seen)
	for _, s := range c.Open {
		why = append(why, "open before: "+s)
	}
	return strings.Join(why, "; ")
}

// raise sets the verdict from the first incident of the window.
func (c *Case) raise(x *Incident, suspects []Suspect) {
	c.Raised, c.Sentence = true, x.Sentence
	c.SecondsToRaise = new(time.Duration(x.Opened - c.StartUnixNano).Seconds())
	for _, s := range suspects {
		if !slices.Contains(c.Suspects, s.Service) {
			c.Suspects = append(c.Suspects, s.Service)
		}
		system, _, _ := strings.Cut(s.Service, " ") // the address of a database follows its system
		if (slices.Contains(c.accept, s.Service) || slices.Contains(c.accept, system)) && c.RankService == nil {
			c.RankService = new(len(c.Suspects))
		}
	}
}

// effect sets the effect of the fault on requests through the faulty service.
func (c *Case) effect(window, healthy []sent) {
	c.Requests = len(window)
	for _, s := range window {
		if !s.ok {
			c.Failed++
		}
	}
	c.MeanMS, c.HealthyMeanMS = mean(window), mean(healthy)
}

// mean returns the mean time of requests in milliseconds, or 0 without requests.
func mean(list []sent) float64 {
	var sum time.Duration
	for _, s := range list {
		sum += s.took
	}
	return float64(sum.Microseconds()) / 1000 / float64(max(1, len(list)))
}
