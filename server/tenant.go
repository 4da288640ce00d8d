package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/api/cases"
	"github.com/sibyl-trace/sibyl/api/objectives"
	"github.com/sibyl-trace/sibyl/api/operating"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/control/opamp"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/ingest/zipkin"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/web"
)

// tenant is a service of its own within the process: it owns a data directory with its databases, and all parts whose
// state depends on the databases. Its life cycle is openTenant, serve, start, close.
type tenant struct {
	Tenant                                  // its name is empty for the default tenant
	config    *config.Config                // configuration at the start
	applied   atomic.Pointer[config.Config] // configuration since the last reload
	log       *slog.Logger
	disk      *pebbledb.Disk
	journal   *journal.Journal
	records   live.Journal // journal, or one that shares its records with other replicas
	store     *store.Store
	live      *live.Service
	plane     *control.Plane
	notes     *cases.Notes
	silences  *cases.Silences
	edits     *objectives.Edits
	settling  sync.Mutex      // held while settings change
	settings  engine.Settings // guarded by settling
	audit     *audit.Log
	outbound  *outbound
	files     *sharedFiles
	registry  *prometheus.Registry // metrics of parts other than the API
	backingUp sync.Mutex           // held during a backup

	shared *shared      // this and the following fields up to traces are set by serve
	api    *api.API     // serves the API, the UI and /metrics
	agents http.Handler // serves agents
	opamp  *opamp.Server
	traces *receiver.Destination

	stop    context.CancelFunc // ends running; this and running are set by start
	running sync.WaitGroup     // goroutines of the tenant
	mu      sync.Mutex         // guards deleted and using.Add
	deleted bool
	using   sync.WaitGroup // requests and scrapes
}

// enter reports whether the tenant can be used. If so, its databases stay open until done is called.
func (t *tenant) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.deleted {
		t.using.Add(1)
	}
	return !t.deleted
}

// done ends a use of the tenant that a successful call of enter has started.
func (t *tenant) done() { t.using.Done() }

// bodiesShare is the ratio of the configured memory to the memory for bodies that are being read from agents.
const bodiesShare = 16

// opening holds the arguments of openTenant.
type opening struct {
	Tenant
	config *config.Config
	disk   *pebbledb.Disk
	files  int         // limit on the open files of each database
	giveUp func(error) // called by a database that can't continue
	log    *slog.Logger
}

// openTenant opens the data directory of o.config, which must exist, and locks it against other processes. If it fails,
// the caller must still close the tenant.
func openTenant(o opening) (t *tenant, err error) {
	c, log := o.config, o.log
	if o.Name != "" {
		log = log.With(slog.String("tenant", o.Name))
	}
	t = &tenant{
		Tenant:   o.Tenant,
		config:   c,
		disk:     o.disk,
		log:      log,
		registry: prometheus.NewRegistry(),
	}
	t.applied.Store(c)
	warnOfMissing(c.DataDir, log)
	t.journal, err = journal.Open(journal.Options{
		Dir:    filepath.Join(c.DataDir, journalName),
		Sync:   c.Journal.Durability == "disk" && !c.Clustered(), // the brokers keep the records, too
		Files:  o.files,
		Memory: c.Memory,
		Disk:   t.disk,
		Log:    log,
		GiveUp: explained(o.giveUp, c.DataDir, journalName),
	})
	if err != nil {
		return t, explain(err, c.DataDir, journalName)
	}
	if t.records, err = sharedJournal(c, t.journal, log); err != nil {
		return t, err
	}
	t.store, err = store.Open(store.Options{
		Dir:    filepath.Join(c.DataDir, storeName),
		Files:  o.files,
		Memory: c.Memory,
		Disk:   t.disk,
		Log:    log,
		GiveUp: explained(o.giveUp, c.DataDir, storeName),
	})
	if err != nil {
		return t, explain(err, c.DataDir, storeName)
	}
	if t.edits, err = objectives.Open(c.DataDir); err != nil {
		return t, err
	}
	if t.live, err = t.openEngine(); err != nil {
		return t, err
	}
	t.plane = control.New(feedback{t.live}, control.Options{
		MaxBuffered:    c.Memory / bodiesShare,
		MaxTracepoints: c.Engine().Tracepoints,
		Log:            log,
	})
	if t.notes, err = cases.OpenNotes(c.DataDir); err != nil {
		return t, err
	}
	if t.silences, err = cases.OpenSilences(c.DataDir); err != nil {
		return t, err
	}
	t.audit = audit.Open(c.DataDir, time.Now, log)
	t.audit.Keep(c.Retention.Audit)
	t.files = newSharedFiles(t)
	t.outbound, err = newOutbound(t)
	return t, err
}

// openEngine returns the engine in the state of its last checkpoint.
func (t *tenant) openEngine() (_ *live.Service, err error) {
	c, o := t.config, live.DefaultOptions()
	if o.Keys, err = c.DecodedKeys(); err != nil {
		return nil, err
	}
	o.Core, o.Assembly = c.Engine(), c.OpenTraces()
	t.edits.Complete(&o.Core)
	t.settings = o.Core.Settings()
	o.MaxJournal = uint64(c.Journal.MaxBytes)
	limits := c.IntakeLimits()
	o.InFlight, o.Heap, o.Charted, o.Whole = limits.InFlight, limits.Heap, limits.Charted, limits.Whole
	o.Blameless, o.SpansPerSecond = limits.Blameless, float64(t.Spans)
	o.Names, o.DecoderNames, o.Decoders = limits.Names, limits.DecoderNames, limits.Decoders
	o.Retention, o.MaxJournalAge = retention(c), c.Journal.MaxAge
	o.Journal, o.Store, o.Full, o.Fits, o.Log, o.Epoch = t.records, t.store, t.disk.Full, t.disk.Fits, t.log, t.epoch
	o.Settings = t.currentSettings
	if t.config.Clustered() {
		o.Shared = t.receive
	}
	return live.Open(o)
}

// currentSettings returns the settings of the configuration with those that people have set.
func (t *tenant) currentSettings() engine.Settings {
	t.settling.Lock()
	defer t.settling.Unlock()
	o := t.applied.Load().Engine()
	t.edits.Complete(&o)
	t.settings = o.Settings()
	return t.settings
}

// settle makes the engine use the settings in c, or in the current configuration if c is nil, with those that people
// have set.
func (t *tenant) settle(ctx context.Context, c *config.Config) error {
	t.settling.Lock()
	defer t.settling.Unlock()
	c = cmp.Or(c, t.applied.Load())
	o := c.Engine()
	t.edits.Complete(&o)
	if settings := o.Settings(); !reflect.DeepEqual(settings, t.settings) {
		if _, err := t.live.Change(ctx, engine.Change{Settings: &settings}); err != nil {
			return fmt.Errorf("record the settings: %w", err)
		}
		t.settings = settings
	}
	t.applied.Store(c)
	return nil
}

// serve connects the tenant with the parts that all tenants share, so that it can answer requests.
func (t *tenant) serve(with *shared) (err error) {
	t.shared = with
	t.registry.MustRegister(tenantCollector{t})
	if t.api, err = t.newAPI(); err != nil {
		return err
	}
	identify := identify(with.tokens, t.Name, t.config.API.TLS.ClientTenant)
	t.agents = t.plane.Handler(identify)
	t.opamp, err = opamp.New(t.plane, identify, t.log)
	return err
}

// start runs the tenant until ctx is done or t.stop is called. The engine then finishes the accepted requests and takes
// a checkpoint. run must run a part of the tenant in a goroutine. If the part returns before the context `until` is
// done, that is an error.
func (t *tenant) start(ctx context.Context, run func(until context.Context, part func() error)) {
	process := ctx
	ctx, t.stop = context.WithCancel(process)
	outbound := func(ctx context.Context) error {
		select {
		case <-t.live.Started(): // the leading replica alone sends messages and fetches traces
			return t.outbound.run(ctx)
		case <-ctx.Done():
			return nil
		}
	}
	parts := []func(context.Context) error{t.live.Run, outbound, t.control}
	if t.config.Clustered() {
		parts = append(parts, t.files.run)
	}
	for _, part := range parts {
		t.running.Add(1)
		run(ctx, func() error {
			defer t.running.Done()
			err := part(ctx)
			if err != nil && ctx.Err() != nil && process.Err() == nil { // no reason to stop the others
				t.log.ErrorContext(ctx, "a part of a deleted tenant failed", slog.Any("error", err))
				err = nil
			}
			return err
		})
	}
	t.running.Go(func() { t.awaitReady(ctx) })
	t.running.Go(func() { t.audit.Run(ctx) })
}

// awaitReady waits until the journal has been read and logs that the tenant is ready, unless ctx is done first.
func (t *tenant) awaitReady(ctx context.Context) {
	select {
	case <-t.live.Started():
		t.log.InfoContext(ctx, "ready")
	case <-ctx.Done():
	}
}

// apply is like [Server.Apply], for the configuration c of the tenant.
func (t *tenant) apply(ctx context.Context, c *config.Config) error {
	apply, err := t.outbound.prepare(c)
	if err != nil {
		return err
	}
	if x := &t.config.Export; c.Export.URL != x.URL || !slices.Equal(c.Export.Headers, x.Headers) {
		t.log.WarnContext(ctx, "the change of the tenant's export takes effect after a restart")
	}
	if err := t.settle(ctx, c); err != nil {
		return err
	}
	apply()
	t.live.Retain(retention(c))
	t.audit.Keep(c.Retention.Audit)
	t.api.SetDirectory(c.Directory())
	return nil
}

// epoch passes the results of the epoch e to the agents, the API and the integrations. Only the goroutine that owns the
// core may call epoch, after the end of the epoch.
func (t *tenant) epoch(core *engine.View, e live.Ended) error {
	t.plane.Publish(core.Searches.Plan(), core.Table)
	t.plane.WantStacks(core.Searches.Sampling())
	t.api.Epoch(core, e.Before, e.Decisions)
	if t.shared.traced != nil {
		t.shared.traced.epoch(core, e, time.Duration(t.live.Counts().Decided.Load()))
	}
	return t.outbound.epoch(core, e, t.api.Silenced(core))
}

// retention returns the limits on history in c.
func retention(c *config.Config) live.Retention {
	return live.Retention{Age: c.Retention.Age, Bytes: c.Retention.Bytes, Exemplars: c.Retention.Exemplars}
}

// leave closes the OpAMP connections of agents, and ends the long polls of the other agents.
func (t *tenant) leave() {
	t.opamp.Close()
	t.plane.Close()
}

// close closes the databases and unlocks the data directory.
func (t *tenant) close() (err error) {
	if t.store != nil {
		err = t.store.Close()
	}
	switch {
	case t.records != nil:
		err = errors.Join(err, t.records.Close())
	case t.journal != nil:
		err = errors.Join(err, t.journal.Close())
	}
	return err
}

// newAPI returns the handler of the API, the UI and /metrics.
func (t *tenant) newAPI() (*api.API, error) {
	ui, err := web.New(t.config.API.BasePath)
	if err != nil {
		return nil, err
	}
	comments, err := cases.OpenComments(t.config.DataDir)
	if err != nil {
		return nil, err
	}
	views, err := operating.OpenViews(t.config.DataDir)
	if err != nil {
		return nil, err
	}
	t.files.reload = append(t.files.reload, comments.Reload, views.Reload)
	failing, err := t.config.FailureRules()
	if err != nil {
		return nil, err
	}
	o := api.Options{
		Tenant:      t.Name,
		Tenants:     t.shared.tenants,
		Failing:     failing,
		Notes:       t.notes,
		Comments:    comments,
		Silences:    t.silences,
		Edits:       t.edits,
		Settings:    func() engine.Settings { return new(t.applied.Load().Engine()).Settings() },
		Settle:      func(ctx context.Context) error { return t.settle(ctx, nil) },
		Views:       views,
		Changed:     t.files.share,
		Audit:       t.audit,
		UI:          t.config.UI(),
		Login:       t.shared.login,
		Base:        t.config.API.BasePath,
		Pages:       ui.Serve,
		Directory:   t.config.Directory(),
		Version:     t.shared.build.Version,
		Go:          t.shared.build.Go,
		Queues:      t.queues,
		Bytes:       t.sizes,
		Registry:    t.registry,
		Agents:      t.plane,
		Webhooks:    t.outbound.notifier.Webhooks,
		DeadLetters: t.outbound.outbox,
		Resend:      t.outbound.notifier.Resend,
		Reply:       notify.ReplyToSlack,
		Backup:      t.backup,
		Clock:       time.Now,
		Log:         t.log,
	}
	if o.GitHubSecret, err = t.config.GitHubSecret(); err != nil {
		return nil, err
	}
	if o.PagerDutySecret, err = t.config.PagerDutySecret(); err != nil {
		return nil, err
	}
	if o.SlackSecret, err = t.config.SlackSecret(); err != nil {
		return nil, err
	}
	if o.Telemetry, err = telemetryOptions(t.config, t.log); err != nil {
		return nil, err
	}
	if t.shared.traced != nil {
		o.Tracer = t.shared.traced.tracer
	}
	return api.New(t.live, t.store, t.shared.tokens, o)
}

// sizes returns the sizes and limits of the databases in bytes.
func (t *tenant) sizes() []operating.Size {
	return []operating.Size{
		{Name: "journal", Length: int64(t.journal.Stats().Bytes), Most: t.config.Journal.MaxBytes},
		{Name: "store", Length: int64(t.store.Bytes()), Most: t.applied.Load().Retention.Bytes},
	}
}

// intake passes requests from the receivers to the engine.
type intake struct{ *tenant }

// Take implements [receiver.Intake].
func (i intake) Take(ctx context.Context, body []byte, format receiver.Format) (receiver.Rejected, error) {
	if !i.enter() {
		return receiver.Rejected{}, errNoTenant
	}
	defer i.done()
	switch format {
	case receiver.Zipkin:
		return i.takeZipkin(ctx, body)
	case receiver.JSON:
		n, why, err := i.live.Take(ctx, body, journal.JSON)
		return receiver.Rejected{Spans: n, Why: why}, err
	case receiver.Protobuf:
	}
	n, why, err := i.live.Take(ctx, body, journal.Protobuf)
	return receiver.Rejected{Spans: n, Why: why}, err
}

// takeZipkin translates body, spans in Zipkin's format, and passes the result to the engine, so that the journal
// contains only OTLP. Rejected spans are counted, but the sender isn't told about them, because Zipkin's responses have
// no field for their number.
func (i intake) takeZipkin(ctx context.Context, body []byte) (receiver.Rejected, error) {
	if refused := i.live.Refuse(); refused != nil { // before spending time on a translation
		return receiver.Rejected{}, refused
	}
	request, rejected, err := zipkin.Translate(body)
	if err != nil {
		return receiver.Rejected{}, err
	}
	n, _, err := i.live.Take(ctx, request, journal.Protobuf)
	if err != nil {
		return receiver.Rejected{}, err
	}
	return receiver.Rejected{Spans: n + i.live.Reject(rejected)}, nil
}
