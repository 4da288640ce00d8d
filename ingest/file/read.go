// Package file reads traces from files, directories and standard input, and closes them at the end of the input.
//
// Formats are recognised by content, never asked for: OTLP as JSON (one document or many, also within the envelope of Jaeger's
// API), JSON lines or protobuf (one request, or requests behind their sizes), and Jaeger's JSON; each plain, gzip or zstd.
//
//	paths ─▶ open, decompress, split into records (one goroutine) ─▶ decode (workers) ─▶ count, report, assemble (one goroutine)
//
// [Read] runs this to the end of the input; [Input.All] then yields whole traces in the order of their IDs. The result does
// not depend on the number of workers. [Everything] hands on what records hold as OTLP instead, undiminished. A record that is broken is reported with its position and left out; what is broken
// outside of records costs what follows up to where reading can begin anew: the next line of JSON, the next file.
//
// Memory is bounded: by Options.Memory for open traces, and for each worker by a chunk of records and by the largest
// record. Large documents are read element by element.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/jaeger"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// DefaultMaxRecord is the size of the largest record that is read where no other is given: a line of JSON, one element of
// resourceSpans or one trace in a JSON document, one resource's spans in protobuf.
const DefaultMaxRecord = 256 << 20

// chunkSize is how many bytes of records a worker takes at once: large against the cost of handing them over.
const chunkSize = 1 << 20

// MaxWorkers bounds Options.Workers: each holds buffers, and more than there are cores gain nothing.
const MaxWorkers = 1024

// Options say how input is read. The zero Options read without attributes, report nothing and use all cores.
type Options struct {
	Keys      *ingest.Keys // attributes to keep; nil: those of the tracepoint protocol
	Workers   int          // goroutines that decode, at most MaxWorkers; 0: one per core
	Memory    int64        // bytes of open traces in memory; 0: assemble.DefaultMemory
	TempDir   string       // where traces go beyond that; "": the system's directory for temporary files
	MaxRecord int          // bytes; 0: DefaultMaxRecord. Values below 256 KiB count as 256 KiB
	Strict    bool         // the first broken record is an error
	Stdin     io.Reader    // what the path "-" stands for; nil: os.Stdin

	// Report is told each broken record, in the order of the input. It is called by one goroutine at a time, and should not
	// block.
	Report func(Broken)
	// Progress is told how far reading has come, about once per MiB, by one goroutine. It should return at once.
	Progress func(Progress)
}

// Progress says how much of the input was read.
type Progress struct {
	Path        string // the file that is being read
	Read, Total int64  // bytes on disk, over all files; standard input counts for Read only
}

// Broken says what could not be used: a record, spans of a record, or a stretch of a file.
type Broken struct {
	Path   string
	Line   int64 // from 1; 0 where the input does not consist of lines
	Offset int64 // byte, in the decompressed file, at which the record or line begins
	Reason trace.Reason
	Err    error
	Spans  int // spans left out of a record that was used; 0: the record was not
}

// Error returns position, reason and cause in one line, like "a.jsonl.gz:12: malformed: …".
func (b Broken) Error() string {
	position := fmt.Sprintf("byte %d", b.Offset)
	if b.Line > 0 {
		position = fmt.Sprintf("%d", b.Line)
	}
	path := b.Path
	if path == Stdin {
		path = "standard input"
	}
	if b.Spans > 0 {
		spans := "spans"
		if b.Spans == 1 {
			spans = "span"
		}
		return fmt.Sprintf("%s:%s: %d %s left out: %s: %v", path, position, b.Spans, spans, b.Reason, b.Err)
	}
	cause := b.Err
	if record, ok := errors.AsType[*ingest.RecordError](cause); ok {
		return fmt.Sprintf("%s:%s: %v", path, position, record)
	}
	return fmt.Sprintf("%s:%s: %s: %v", path, position, b.Reason, cause)
}

// Unwrap returns the cause.
func (b Broken) Unwrap() error { return b.Err }

// Count is how much was left out for one reason.
type Count struct {
	Records int64 // whole records, or stretches that are no record
	Spans   int64 // spans of records that were used
}

// Summary says what was read.
type Summary struct {
	Files   int // that were read
	Skipped int // files in directories that hold no traces
	Bytes   int64
	Records int64 // that were used
	Spans   int64
	Spilled int64 // bytes of open traces that went to disk
	Broken  map[trace.Reason]Count
}

// Input is what was read: whole traces, not yet handed out.
type Input struct {
	Table   *trace.Table // the names in all traces
	Summary Summary

	assembler *assemble.Offline
}

// Next puts the next trace into t, in the order of IDs; it returns io.EOF after the last. See assemble.Offline.
func (in *Input) Next(t *trace.Trace) error { return in.assembler.Next(t) }

// All returns the traces in the order of IDs. Each is valid until the next one.
func (in *Input) All() iter.Seq2[*trace.Trace, error] { return in.assembler.All() }

// Find returns the traces with the given IDs once more, after the last of [Input.All]. See assemble.Offline.
func (in *Input) Find(ids []trace.ID) iter.Seq2[*trace.Trace, error] { return in.assembler.Find(ids) }

// Close gives back memory and temporary files.
func (in *Input) Close() error { return in.assembler.Close() }

// Read reads all of paths: files, directories, and [Stdin]. It returns an error if a path cannot be read, if open traces cannot
// be written to disk, if ctx ends, and with Options.Strict a [Broken] for the first record that is broken. Without error
// the caller must close the Input.
func Read(ctx context.Context, paths []string, options Options) (*Input, error) {
	sources, err := list(paths)
	if err != nil {
		return nil, err
	}
	options = options.withDefaults()
	r := &reading{
		options: options,
		chunks:  make(chan *chunk, options.Workers+2),
		free:    make(chan *chunk, options.Workers+2),
		done:    make(chan *chunk, options.Workers+2),
		input: &Input{
			Table:     &trace.Table{},
			Summary:   Summary{Broken: make(map[trace.Reason]Count)},
			assembler: assemble.NewOffline(assemble.Options{Memory: options.Memory, TempDir: options.TempDir}),
		},
	}
	if err := r.run(ctx, sources); err != nil {
		return nil, errors.Join(err, r.input.Close())
	}
	r.input.Summary.Spans = r.input.assembler.Spans()
	r.input.Summary.Spilled = r.input.assembler.Spilled()
	return r.input, nil
}

func (o Options) withDefaults() Options {
	if o.Keys == nil {
		o.Keys, _ = ingest.NewKeys() // no names, no error
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	o.Workers = min(o.Workers, MaxWorkers)
	if o.MaxRecord <= 0 {
		o.MaxRecord = DefaultMaxRecord
	}
	o.MaxRecord = max(o.MaxRecord, windowSize)
	if o.Stdin == nil {
		o.Stdin = os.Stdin
	}
	return o
}

// reading is one run of [Read]. The channels hold all chunks there are: as many as workers, one that is being filled and one
// that is being assembled. So a slow stage holds up the ones before it.
type reading struct {
	options Options
	chunks  chan *chunk // from the splitter to the workers
	done    chan *chunk // from the workers to the assembler
	free    chan *chunk // back
	input   *Input

	read, total atomic.Int64 // bytes on disk; total is written before reading starts
}

// chunk is some records on their way: first raw, then decoded.
type chunk struct {
	number  int // in the order of the input
	path    string
	data    []byte
	records []record

	batch  ingest.Batch
	broken []Broken
	used   int64
}

// record is data[start:end] of its chunk.
type record struct {
	start, end   int
	format       format
	line, offset int64
}

// run starts the stages and waits for all of them.
func (r *reading) run(ctx context.Context, sources []source) error {
	for _, s := range sources {
		r.total.Add(s.size)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for range cap(r.free) {
		r.free <- &chunk{}
	}
	var all sync.WaitGroup
	all.Go(func() {
		defer close(r.chunks)
		if err := r.split(ctx, sources); err != nil {
			cancel(err)
		}
	})
	tables := make([]*trace.Table, r.options.Workers)
	var workers sync.WaitGroup
	for i := range tables {
		tables[i] = &trace.Table{}
		workers.Go(func() { r.decode(newDecoders(tables[i], r.options.Keys)) })
	}
	all.Go(func() {
		workers.Wait()
		close(r.done)
	})
	if err := r.collect(); err != nil {
		cancel(err)
	}
	for range r.done { // after an error, until the others have seen it
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, t := range tables {
		r.input.Table.Merge(t)
	}
	return nil
}

// decoders is what one worker owns.
type decoders struct {
	otlp   *otlp.Decoder
	jaeger *jaeger.Decoder
}

func newDecoders(table *trace.Table, keys *ingest.Keys) decoders {
	return decoders{otlp.NewDecoder(table, keys), jaeger.NewDecoder(table, keys)}
}

// decode decodes chunks until there are no more.
func (r *reading) decode(d decoders) {
	for c := range r.chunks {
		for _, rec := range c.records {
			d.record(c, rec)
		}
		r.done <- c // never blocks: there is room for all chunks
	}
}

var errNoTraces = errors.New("a JSON document without resourceSpans, scopeSpans, data or spans")

// record decodes one record of c.
func (d decoders) record(c *chunk, rec record) {
	var err error
	switch data := c.data[rec.start:rec.end]; rec.format {
	case otlpJSON:
		err = d.otlp.JSON(data, &c.batch)
	case otlpResource:
		err = d.otlp.ResourceSpansJSON(data, &c.batch)
	case otlpProtobuf:
		err = d.otlp.Protobuf(data, &c.batch)
	case jaegerJSON:
		err = d.jaeger.JSON(data, &c.batch)
	case noTraces:
		return
	case unknown:
		err = errNoTraces
	}
	broken := Broken{Path: c.path, Line: rec.line, Offset: rec.offset}
	if err != nil {
		broken.Reason, broken.Err = trace.Malformed, err
		if failed, ok := errors.AsType[*ingest.RecordError](err); ok {
			broken.Reason = failed.Reason
		}
		c.broken = append(c.broken, broken)
		return
	}
	c.used++
	for _, rejected := range c.batch.Rejected {
		broken.Reason, broken.Err, broken.Spans = rejected.Reason, errors.New(rejected.Detail), rejected.Spans
		c.broken = append(c.broken, broken)
	}
	c.batch.Rejected = c.batch.Rejected[:0]
}

// collect takes decoded chunks in the order of the input until there are no more.
func (r *reading) collect() error {
	waiting := make(map[int]*chunk) // decoded before their turn: no more than there are chunks
	next := 0
	for c := range r.done {
		waiting[c.number] = c
		for waiting[next] != nil {
			c := waiting[next]
			delete(waiting, next)
			next++
			if err := r.take(c); err != nil {
				return err
			}
			c.reset()
			r.free <- c // never blocks: there is room for all chunks
		}
	}
	return nil
}

// take counts and assembles what c holds.
func (r *reading) take(c *chunk) error {
	r.input.Summary.Records += c.used
	slices.SortStableFunc(c.broken, func(a, b Broken) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, b := range c.broken {
		if err := r.count(b); err != nil {
			return err
		}
	}
	return r.input.assembler.Add(&c.batch)
}

// count counts and reports what is broken, or returns it where that is an error.
func (r *reading) count(b Broken) error {
	if r.options.Strict {
		return b
	}
	n := r.input.Summary.Broken[b.Reason]
	if n.Spans += int64(b.Spans); b.Spans == 0 {
		n.Records++
	}
	r.input.Summary.Broken[b.Reason] = n
	if r.options.Report != nil {
		r.options.Report(b)
	}
	return nil
}

// maxKept bounds the buffers that an empty chunk keeps.
const maxKept = 4 * chunkSize

func (c *chunk) reset() {
	if cap(c.data) > maxKept {
		c.data = nil
	}
	if cap(c.batch.Spans) > maxKept/64 || cap(c.batch.Attrs) > maxKept/32 {
		c.batch = ingest.Batch{}
	}
	c.batch.Reset()
	c.data, c.records, c.broken, c.used = c.data[:0], c.records[:0], nil, 0
}

// split reads all sources, cuts them into records and hands these on in chunks.
func (r *reading) split(ctx context.Context, sources []source) error {
	f := &filler{reading: r, stop: ctx.Done()}
	for _, s := range sources {
		f.path = s.path
		if err := r.splitFile(ctx, s, f.record, f.broken); err != nil {
			return err
		}
		if err := f.flush(); err != nil {
			return err
		}
	}
	return nil
}

// takeRecord and takeBroken take what a stream is cut into; see splitter.
type (
	takeRecord func(data []byte, f format, line, offset int64) error
	takeBroken func(reason trace.Reason, err error, line, offset int64) error
)

// splitFile cuts one source into records.
func (r *reading) splitFile(ctx context.Context, s source, record takeRecord, broken takeBroken) (err error) {
	file, err := s.open(ctx, r.options.Stdin, &r.read)
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil && closed != nil {
			err = fmt.Errorf("close input: %w", closed)
		}
	}()
	split := &splitter{w: newWindow(file, r.options.MaxRecord), record: record, broken: broken}
	head := split.w.peek(sniffSize)
	how := sniff(head)
	if s.listed && !holdsTraces(head, how, s.named()) {
		r.input.Summary.Skipped++
		return nil
	}
	if err = split.w.err; len(head) > 0 {
		err = split.run(how)
	}
	r.input.Summary.Files++
	r.input.Summary.Bytes += split.w.offset()
	switch {
	case (err == nil || errors.Is(err, io.EOF)) && file.members != nil && file.members.trailing:
		return broken(trace.Malformed, errTrailing, 0, split.w.offset())
	case err == nil || errors.Is(err, io.EOF):
		return nil
	case file.raw.err != nil:
		return fmt.Errorf("read input %s: %w", s.path, file.raw.err)
	case file.compressed && errors.Is(err, split.w.err):
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the data ends too early: is the file complete?")
		}
		return broken(trace.Malformed, fmt.Errorf("decompress: %w", err), 0, split.w.offset())
	}
	return err
}

// filler puts records into chunks.
type filler struct {
	reading *reading
	stop    <-chan struct{}
	path    string
	chunk   *chunk // nil: none is being filled
	number  int
}

// room returns the chunk that has room for n more bytes.
func (f *filler) room(n int) (*chunk, error) {
	if f.chunk != nil && len(f.chunk.data) > 0 && len(f.chunk.data)+n > chunkSize {
		if err := f.flush(); err != nil {
			return nil, err
		}
	}
	if f.chunk == nil {
		select {
		case f.chunk = <-f.reading.free:
		case <-f.stop:
			return nil, errStopped
		}
		f.chunk.number, f.chunk.path = f.number, f.path
		f.number++
	}
	return f.chunk, nil
}

func (f *filler) record(data []byte, format format, line, offset int64) error {
	c, err := f.room(len(data))
	if err != nil {
		return err
	}
	start := len(c.data)
	c.data = append(c.data, data...)
	c.records = append(c.records, record{start, len(c.data), format, line, offset})
	return nil
}

func (f *filler) broken(reason trace.Reason, err error, line, offset int64) error {
	c, full := f.room(0)
	if full != nil {
		return full
	}
	c.broken = append(c.broken, Broken{Path: f.path, Line: line, Offset: offset, Reason: reason, Err: err})
	return nil
}

// flush hands the chunk on that is being filled.
func (f *filler) flush() error {
	if f.chunk != nil {
		f.reading.chunks <- f.chunk // never blocks: there is room for all chunks
		f.chunk = nil
	}
	if f.reading.options.Progress != nil {
		f.reading.options.Progress(Progress{f.path, f.reading.read.Load(), f.reading.total.Load()})
	}
	select {
	case <-f.stop:
		return errStopped
	default:
		return nil
	}
}
