package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/cases"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/control/sampling"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/internal/listener"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// outbound holds the integrations with other systems: webhooks, remote sampling, fetching from Jaeger, and export of
// critical paths.
type outbound struct {
	config       *config.Config // configuration at the start; used only for keys whose change needs a restart
	log          *slog.Logger
	store        *store.Store
	notes        *cases.Notes // people's notes on incidents, which can mute them
	silences     *cases.Silences
	directory    atomic.Pointer[directory.Directory]
	outbox       *store.Outbox
	notifier     *notify.Notifier
	hooks        atomic.Int64 // number of webhooks
	strategies   *sampling.Strategies
	rates        atomic.Pointer[sampling.Options]
	fetching     *fetching
	exporting    *exporting         // nil if off
	samplingHTTP *listener.Listener // this and samplingGRPC are set by listen; nil if off
	samplingGRPC *listener.Listener
}

// newOutbound sets up the integrations of t that its configuration names. It passes traces fetched from Jaeger to t.
func newOutbound(t *tenant) (*outbound, error) {
	c, s, log := t.config, t.store, t.log
	o := &outbound{
		config:     c,
		log:        log,
		store:      s,
		notes:      t.notes,
		silences:   t.silences,
		strategies: sampling.NewStrategies(&sampling.Rates{Default: c.Sampling.Default}),
		fetching:   &fetching{intake: intake{t}, store: s, log: log, changed: make(chan struct{}, 1)},
	}
	options := notify.Options{Log: log}
	if t.config.Clustered() {
		options.Delivered = t.delivered
	}
	var err error
	if o.outbox, err = s.OpenOutbox(store.DefaultOutboxLimits()); err != nil {
		return nil, err
	}
	options.Outbox = o.outbox
	if o.notifier, err = notify.New(options, nil); err != nil {
		return nil, err
	}
	if o.exporting, err = o.newExporting(s, c.Engine().Path); err != nil {
		return nil, err
	}
	apply, err := o.prepare(c)
	if err != nil {
		return nil, err
	}
	apply()
	return o, nil
}

// prepare returns a function that applies the keys of c that can change while the service runs. If a value in c can't
// be used, it returns an error and changes nothing.
func (o *outbound) prepare(c *config.Config) (apply func(), err error) {
	endpoints, err := c.Endpoints()
	if err != nil {
		return nil, err
	}
	fetchers, err := o.fetching.prepare(c.Jaeger.Query)
	if err != nil {
		return nil, err
	}
	configure, err := o.notifier.Prepare(endpoints)
	if err != nil {
		return nil, err
	}
	return func() {
		rates, directory := c.Sampling.Rates(), c.Directory()
		o.directory.Store(&directory)
		o.rates.Store(&rates)
		o.hooks.Store(int64(len(endpoints)))
		o.fetching.replace(fetchers)
		configure()
	}, nil
}

// position stores the progress of fetching from the server at url.
type position struct {
	store *store.Store
	url   string
}

// Load implements [query.Positions].
func (p position) Load(context.Context) (time.Time, error) { return p.store.Positions.Load(p.url) }

// Save implements [query.Positions].
func (p position) Save(_ context.Context, through time.Time) error {
	return p.store.Positions.Save(p.url, through)
}

// epoch publishes the results of the epoch e. silenced holds the open incidents that a silence covers. Only the
// goroutine that owns the core may call epoch, after the end of the epoch. If epoch returns an error, the caller must
// not save its state; see [notify.Notifier.Enqueue].
func (o *outbound) epoch(core *engine.View, e live.Ended, silenced map[uint64]*contract.Silenced) error {
	if o.config.SamplingHTTP != "" || o.config.SamplingGRPC != "" {
		entries, before := core.Searches.Entries(core.Groups), o.strategies.Rates()
		o.strategies.Publish(sampling.RatesOf(entries, core.Table, entryRates(core), before, *o.rates.Load()))
	}
	if o.exporting != nil {
		o.exporting.epoch(core.Problems.Open())
	}
	incidents, held := core.Incidents.All(), o.silences.Held()
	muted := func(id uint64) bool { return silenced[id] != nil || o.notes.IsMuted(id, time.Now()) }
	events := notify.Events(&notify.Epoch{
		At:             e.At,
		Source:         "sibyl",
		Decisions:      e.Decisions,
		Before:         e.Before,
		Problems:       core.Problems.Open(),
		Names:          namesOf(core, e),
		Incidents:      incidents,
		Annotations:    core.Annotations,
		Investigation:  core.Searches.Investigation,
		Directory:      *o.directory.Load(),
		Muted:          muted,
		Held:           held,
		Acknowledged:   o.acknowledged,
		IncidentTraces: func(x *engine.Incident) []notify.Trace { return o.sampleTraces(core, x) },
		IncidentURL:    o.incidentURL,
	})
	for _, event := range events {
		event.Log(o.log)
	}
	stillHeld, opened := []uint64{}, []uint64{}
	for i := range incidents {
		x := &incidents[i]
		switch id := x.ID; {
		case !x.IsOpen():
		case slices.Contains(held, id) && muted(id):
			stillHeld = append(stillHeld, id)
		case x.LastOpened() == e.At && silenced[id] != nil:
			opened = append(opened, id)
		}
	}
	if o.hooks.Load() > 0 {
		// Until the events are stored, the released incidents stay held: after a crash they are released again, and the
		// outbox drops the second event.
		if err := o.silences.Hold(slices.Concat(held, opened)); err != nil {
			return err
		}
		if err := o.notifier.Enqueue(events...); err != nil {
			return err
		}
	}
	return o.silences.Hold(append(stillHeld, opened...))
}

// acknowledged returns the acknowledgement of incident, or nil if nobody has acknowledged it.
func (o *outbound) acknowledged(incident uint64) *notify.Note {
	n := o.notes.Acknowledgement(incident, time.Now())
	if n == nil {
		return nil
	}
	return notify.NewNote(n.By, n.At, n.Text)
}

// sampleTraces returns slow and failed traces of x, with links to the configured tracing backends or, if there are no
// backends, to the UI.
func (o *outbound) sampleTraces(core *engine.View, x *engine.Incident) []notify.Trace {
	found, err := cases.SampleTraces(o.store, x.ID, x.Types, x.Onset, x.Closed())
	if err != nil {
		o.log.Error("sample traces of an incident cannot be read", slog.Any("error", err))
	}
	templates, ui := o.directory.Load().Traces, o.config.UI()
	var all []notify.Trace
	for i := range found {
		t := &found[i]
		r := &directory.Request{Trace: t.Trace, Start: t.Start, End: t.Start.Add(time.Duration(t.Duration))}
		if g := core.Groups.Group(t.RequestType); g != nil {
			r.Service, r.Operation = core.Table.ServiceName(g.Entry), core.Table.OpName(g.Entry)
		}
		links := directory.LinksTo(templates, r)
		if len(links) == 0 && ui != "" {
			links = append(links, directory.URL{Name: "Trace", URL: ui + "/traces/" + t.Trace.String()})
		}
		all = append(all, notify.Trace{ID: t.Trace.String(), DurationNS: t.Duration, Failed: t.Failed, Links: links})
	}
	return all
}

// incidentURL returns the URL of the incident's page, or "" if the URL of the UI is unknown.
func (o *outbound) incidentURL(id uint64) string {
	ui := o.config.UI()
	if ui == "" {
		return ""
	}
	return ui + "/incidents/" + fmt.Sprintf("%016x", id)
}

// entryRates returns the number of traces per second by entry operation.
func entryRates(core *engine.View) map[trace.Op]float64 {
	rates := make(map[trace.Op]float64)
	for g := range core.Groups.Each() {
		if g.Level == group.LevelRequestType {
			rates[g.Entry] += core.Rate(g.ID)
		}
	}
	return rates
}

// namesOf returns names for the events of the epoch e, including the request types of incidents, and the groups of
// decisions and problems.
func namesOf(core *engine.View, e live.Ended) *describe.Names {
	names, g := describe.New(core.Table, describe.Verbatim), core.Groups
	affected := core.AffectedTypes()
	for i := range affected {
		names.Add(&affected[i])
	}
	add := func(ids ...analysis.Hash) {
		for _, id := range ids {
			if group := g.Group(id); group != nil {
				s := g.Summarize(group)
				names.Add(&s)
			}
		}
	}
	for i := range e.Decisions {
		add(e.Decisions[i].Group.RequestType, e.Decisions[i].Group.Group)
	}
	now := core.Problems.Open()
	for _, p := range slices.Concat(notify.Missing(now, e.Before), notify.Missing(e.Before, now)) {
		add(p.RequestType, p.Group)
	}
	return names
}

// samplingReadTimeout limits the time to read a request for sampling rates. It is short, because such a request has no
// body.
const samplingReadTimeout = 10 * time.Second

// listen listens on the configured addresses of remote sampling, with at most the given number of connections to each.
func (o *outbound) listen(ctx context.Context, connections int) (err error) {
	const name = "remote sampling"
	web := &http.Server{Handler: o.strategies, ReadTimeout: samplingReadTimeout}
	files := o.config.Sampling.TLS
	share := connlimit.NewShare(connections, o.log)
	if o.samplingHTTP, err = openHTTP(ctx, name, o.config.SamplingHTTP, share, files, o.log, web); err != nil {
		return err
	}
	share = connlimit.NewShare(connections, o.log)
	c, err := listenerConfig(name, o.config.SamplingGRPC, share, files, o.log)
	if err != nil {
		return err
	}
	o.samplingGRPC, err = listener.OpenGRPC(ctx, c, o.strategies.NewGRPC)
	return err
}

// run sends notifications, exports critical paths and fetches traces, until ctx is done or fetching fails.
func (o *outbound) run(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { o.notifier.Run(ctx); return nil })
	if o.exporting != nil {
		running.Go(func() error { o.exporting.run(ctx); return nil })
	}
	running.Go(func() error { return o.fetching.run(ctx) })
	return running.Wait()
}
