package engine_test

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/trace"
)

// report applies the report of an event and reports whether it is new.
func (r *rollouts) report(at trace.Nanos, kind engine.AnnotationKind, service, version, text string) bool {
	x := engine.Annotation{At: at, Kind: kind, Source: engine.SourceAPI, Text: text}
	return r.core.Apply(&engine.Change{Report: engine.NewReport(x, service, version)})
}

// A deploy that is reported and detected within minutes is one annotation, whichever comes first. It has the time and
// the versions that were detected, and the text of the report.
func TestReportedAndDetected(t *testing.T) {
	for _, c := range []struct {
		name, reported, deployed string
		detectFirst              bool
		after                    time.Duration
		want                     int
	}{
		{"reported first", "2", "2", false, time.Minute, 1},
		{"detected first", "2", "2", true, -time.Minute, 1},
		{"with a leading v", "v2", "2", false, time.Minute, 1},
		{"an abbreviated commit", "0123abc", "0123abcdef0123", false, time.Minute, 1},
		{"without a version", "", "2", false, time.Minute, 1},
		{"another version", "3", "2", false, time.Minute, 2},
		{"much later", "2", "2", false, time.Hour, 2},
	} {
		r := newRollouts(t, engine.DefaultOptions())
		at := r.now
		detect := func() {
			r.core.ObserveVersions([]engine.VersionSeen{r.seen(at, "shop", c.deployed)})
		}
		if c.detectFirst {
			detect()
		}
		r.report(at.Add(-c.after), engine.KindDeploy, "shop", c.reported, "rollout")
		first := r.core.View().Annotations[0].ID
		if !c.detectFirst {
			detect()
		}
		r.core = r.again(t, engine.DefaultOptions())
		all := r.core.View().Annotations
		if len(all) != c.want {
			t.Errorf("%s: %d annotations, want %d: %+v", c.name, len(all), c.want, all)
		}
		x := all[0]
		if c.want == 1 && (x.At != at || x.Text != "rollout" || x.Source != engine.SourceAPI || x.ID != first ||
			r.core.View().Table.Text(x.Version) != c.deployed || r.core.View().Table.Text(x.Before) != "1") {
			t.Errorf("%s: %+v", c.name, x)
		}
		if c.want == 1 && r.report(at.Add(-c.after), engine.KindDeploy, "shop", c.reported, "rollout") {
			t.Errorf("%s: a repetition is new", c.name)
		}
	}
}

// A report that is delivered twice is one annotation. Annotations are in the order of their times, names of services
// that send no spans are known, and the oldest annotations are deleted first.
func TestReports(t *testing.T) {
	r := newRollouts(t, engine.DefaultOptions())
	for _, c := range []struct {
		after         time.Duration
		service, text string
		want          bool
	}{
		{0, "cron", "on", true},
		{time.Second, "cron", "on", false},
		{time.Second, "cron", "off", true},
		{2 * time.Minute, "cron", "on", true},
		{time.Second, "", "on", true},
		{-time.Hour, "cron", "on", true},
	} {
		if got := r.report(r.now.Add(c.after), engine.KindFlag, c.service, "", c.text); got != c.want {
			t.Errorf("%+v: new %t", c, got)
		}
	}
	all := r.core.View().Annotations
	if len(all) != 5 || all[0].At != r.now.Add(-time.Hour) || r.core.View().Table.Text(all[0].Service) != "cron" {
		t.Errorf("%+v", all)
	}
	for i := range 1000 {
		r.report(r.now.Add(time.Hour+time.Duration(i)*time.Hour), engine.KindOther, "", "", "sale")
	}
	if all = r.core.View().Annotations; len(all) != 1000 || all[0].Kind != engine.KindOther {
		t.Errorf("%d annotations, the first %+v", len(all), all[0])
	}
}

// A flood of reports from one source displaces neither detected deploys nor reports from other sources.
func TestFloodOfReports(t *testing.T) {
	r := newRollouts(t, engine.DefaultOptions())
	at := r.now.Add(time.Hour)
	github := engine.Annotation{At: r.now, Source: engine.SourceGitHub, Text: "1.8"}
	r.core.Apply(&engine.Change{Report: engine.NewReport(github, "shop", "1.8")})
	for i := range 3000 {
		r.report(at.Add(time.Duration(i)*time.Hour), engine.KindOther, "", "", "flood")
	}
	all := r.core.View().Annotations
	if len(all) != 1000 || all[0].Text != "1.8" || all[999].At != at.Add(2999*time.Hour) {
		t.Errorf("%d annotations, the first %+v, the last %+v", len(all), all[0], all[len(all)-1])
	}
}
