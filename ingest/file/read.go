// Package file reads traces from files, directories and standard input. It closes traces at the end of the input.
//
// It recognises formats by content: OTLP as JSON (one or more documents, including responses from Jaeger's and Tempo's
// APIs), as JSON lines, as protobuf (one request) or as requests with length prefixes, and the JSON of Jaeger and
// Zipkin. Files may be compressed with gzip or zstd; prefixed requests may also be compressed one by one.
//
//	paths ─▶ open, decompress, split into records ─▶ decode    ─▶ count, report, assemble
//	         (one goroutine)                         (workers)    (one goroutine)
//
// [Read] reads all of the input; [Input.All] then yields whole traces in the order of their IDs. The result does not
// depend on the number of workers. [ReadOTLP] instead returns records as OTLP without loss. A broken record is reported
// with its position and skipped. If the structure around records is broken, reading continues where it can: at the next
// line of JSON or the next file.
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
	"sync"
	"sync/atomic"

	"github.com/go-faster/jx"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/jaeger"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/ingest/zipkin"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// DefaultMaxRecord is the default limit on the size of a record in bytes. A record is a line of JSON, one element of
// resourceSpans or one trace in a JSON document, or the spans of one resource in protobuf.
const DefaultMaxRecord = 256 << 20

// chunkSize is the size in bytes of the chunks of records that workers process. It is large enough to amortise the cost
// of the handover.
const chunkSize = 1 << 20

// MaxWorkers is the maximum of Options.Workers. Each worker holds buffers, and there is no gain from more workers than
// cores.
const MaxWorkers = 1024

// Options configures reading. With zero Options, no attributes are kept, nothing is reported, and all cores are used.
type Options struct {
	Keys      *ingest.Keys // attributes to keep; if nil, only the tracepoint protocol's
	Workers   int          // number of decoding goroutines, at most MaxWorkers; one per core if 0
	Memory    int64        // limit on the bytes of open traces in memory; assemble.DefaultMemory if 0
	TempDir   string       // directory for open traces beyond Memory; the system's temporary directory if empty
	MaxRecord int          // maximum size of a record in bytes, at least 256 KiB; DefaultMaxRecord if 0
	Strict    bool         // fail at the first broken record
	Stdin     io.Reader    // reader for the path "-"; os.Stdin if nil

	// Decoded is called for the spans of each part of a file, in the order of the input, by one goroutine at a time. It
	// must not retain or modify the batch.
	Decoded func(path string, b *ingest.Batch)
	// Report is called for each broken record, in the order of the input, by one goroutine at a time. It should not
	// block.
	Report func(InputError)
	// Progress is called about once per MiB, by one goroutine. It should return immediately.
	Progress func(Progress)
}

// Progress is the progress of reading.
type Progress struct {
	Path        string // the current file
	Read, Total int64  // bytes of all files, as on disk; Total excludes standard input
}

// InputError is the error for a part of the input that could not be used: a record, some of its spans, or a section of
// a file.
type InputError struct {
	Path         string
	Line         int64 // from 1; 0 if the input does not consist of lines
	Offset       int64 // offset in the decompressed file where the record or line starts
	Decompressed bool  // the file is compressed, so Offset is not an offset in the file itself
	Reason       trace.Reason
	Err          error
	Spans        int // number of spans rejected from a record that was otherwise used; 0 if all of it was rejected
}

// Error returns the position, the reason and the cause in one line, for example "a.jsonl.gz:12: malformed: …". If only
// spans were rejected, it gives their number instead of the reason.
func (b InputError) Error() string {
	position := fmt.Sprintf("byte %d", b.Offset)
	if b.Line > 0 {
		position = fmt.Sprintf("%d", b.Line)
	} else if b.Decompressed {
		position += " of the decompressed data"
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
		return fmt.Sprintf("%s:%s: %d %s left out: %v", path, position, b.Spans, spans, b.Err)
	}
	cause := b.Err
	if errors.Is(cause, ErrCut) {
		return fmt.Sprintf("%s:%s: %v", path, position, cause)
	}
	if record, ok := errors.AsType[*ingest.RecordError](cause); ok {
		return fmt.Sprintf("%s:%s: %v", path, position, record)
	}
	return fmt.Sprintf("%s:%s: %s: %v", path, position, b.Reason, cause)
}

// ErrCut is the cause of an [InputError] for a file whose compressed data ends early. The data before that point is
// used.
var ErrCut = errors.New("the file is truncated")

// Unwrap returns the cause.
func (b InputError) Unwrap() error { return b.Err }

// Count counts the records and spans that were rejected for one reason.
type Count struct {
	Records int64 // number of whole records, and of sections of files between records
	Spans   int64 // number of spans of records that were otherwise used
}

// Summary counts what was read and what was rejected.
type Summary struct {
	Files    int // number of files read
	Skipped  int // number of files without traces in directories
	Bytes    int64
	Records  int64 // number of records used
	Spans    int64
	Rejected map[trace.Reason]Count // excludes truncated files; see ErrCut
}

// Cover adds to c the records that were used, and the records and spans that were rejected, by reason.
func (s *Summary) Cover(c *trace.Coverage) {
	c.Records += s.Records
	for reason, n := range s.Rejected {
		c.LeaveSpans(n.Spans, reason)
		c.LeaveRecords(n.Records, reason)
	}
}

// Input holds the traces of a finished [Read].
type Input struct {
	Table   *trace.Table // contains the names in all traces
	Summary Summary

	assembler *assemble.Offline
}

// All yields the traces in the order of their IDs. Each is valid until the next one is yielded.
func (in *Input) All() iter.Seq2[*trace.Trace, error] { return in.assembler.All() }

// Find yields the traces with the given IDs again; see [assemble.Offline.Find]. It may be called after [Input.All] has
// ended.
func (in *Input) Find(ids []trace.ID) iter.Seq2[*trace.Trace, error] { return in.assembler.Find(ids) }

// Close frees memory and removes temporary files.
func (in *Input) Close() error { return in.assembler.Close() }

// Read reads all paths: files, directories, and [Stdin]. It returns an error if a path cannot be read, if open traces
// cannot be written to disk, or if ctx ends. With Options.Strict it returns an [InputError] for the first broken
// record. The caller must close the Input.
func Read(ctx context.Context, paths []string, options Options) (*Input, error) {
	sources, err := list(paths)
	if err != nil {
		return nil, err
	}
	options = options.withDefaults()
	r := &pipeline{
		options: options,
		chunks:  make(chan *chunk, options.Workers+2),
		free:    make(chan *chunk, options.Workers+2),
		done:    make(chan *chunk, options.Workers+2),
		input: &Input{
			Table:     &trace.Table{},
			Summary:   Summary{Rejected: make(map[trace.Reason]Count)},
			assembler: assemble.NewOffline(assemble.Options{Memory: options.Memory, TempDir: options.TempDir}),
		},
	}
	if err := r.run(ctx, sources); err != nil {
		return nil, errors.Join(err, r.input.Close())
	}
	r.input.Summary.Spans = r.input.assembler.Spans()
	return r.input, nil
}

func (o Options) withDefaults() Options {
	if o.Keys == nil {
		o.Keys, _ = ingest.NewKeys() // no error is possible without names
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

// pipeline is the state of one call to [Read]. It has one chunk per worker, one to be filled and one to be assembled.
// Each channel can hold all chunks, so only the splitter ever blocks, when no chunk is free. A slow stage thus slows
// down the stages before it.
type pipeline struct {
	options Options
	chunks  chan *chunk // from the splitter to the workers
	done    chan *chunk // from the workers to the assembler
	free    chan *chunk // from the assembler back to the splitter
	input   *Input

	read, total atomic.Int64 // bytes on disk; total is set before reading starts
}

// chunk is a batch of records, first raw, then decoded.
type chunk struct {
	number  int // position in the order of the input
	path    string
	data    []byte
	records []record

	batch  ingest.Batch
	broken []InputError
	used   int64
}

// record is data[start:end] of its chunk.
type record struct {
	start, end int
	format     format
	position
}

// run starts the stages, waits for all of them, and returns the first error.
func (r *pipeline) run(ctx context.Context, sources []source) error {
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
		workers.Go(func() { r.decode(newWorker(tables[i], r.options.Keys)) })
	}
	all.Go(func() {
		workers.Wait()
		close(r.done)
	})
	if err := r.collect(); err != nil {
		cancel(err)
	}
	for range r.done { // after an error, wait until the other stages end
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

// worker holds the decoders of one goroutine.
type worker struct {
	otlp   *otlp.Decoder
	jaeger *jaeger.Decoder
}

func newWorker(table *trace.Table, keys *ingest.Keys) worker {
	return worker{otlp.NewDecoder(table, keys), jaeger.NewDecoder(table, keys)}
}

// decode decodes chunks with w until r.chunks is closed.
func (r *pipeline) decode(w worker) {
	for c := range r.chunks {
		for _, rec := range c.records {
			w.record(c, rec)
		}
		r.done <- c // never blocks: the channel can hold all chunks
	}
}

// noTraces returns the error for data, a document of unknown format. If it is JSON, the error names its first field.
func noTraces(data []byte) error {
	const formats = "want OTLP (resourceSpans or batches), Jaeger (data) or Zipkin (a list of spans with traceId)"
	j := jx.DecodeBytes(data)
	for j.Next() == jx.Array {
		if it, err := j.ArrIter(); err != nil || !it.Next() {
			break
		}
	}
	if it, err := j.ObjIter(); err == nil && it.Next() {
		return fmt.Errorf("no traces in a JSON document that starts with the field %q; %s",
			it.Key()[:min(len(it.Key()), 40)], formats)
	}
	return errors.New("not a JSON document with traces; " + formats)
}

// record decodes rec into the batch of c, or adds an error to c.broken.
func (w worker) record(c *chunk, rec record) {
	var err error
	switch data := c.data[rec.start:rec.end]; rec.format {
	case otlpJSON:
		err = w.otlp.JSON(data, &c.batch)
	case otlpResource:
		err = w.otlp.ResourceSpansJSON(data, &c.batch)
	case otlpProtobuf:
		err = w.otlp.Protobuf(data, &c.batch)
	case jaegerJSON:
		err = w.jaeger.JSON(data, &c.batch)
	case zipkinJSON:
		err = w.zipkin(data, &c.batch)
	case otherSignal:
		return
	case unknown:
		err = noTraces(data)
	}
	broken := rec.failed(c.path, "", nil)
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

// zipkin decodes data, Zipkin's JSON, and appends its spans to into.
func (w worker) zipkin(data []byte, into *ingest.Batch) error {
	request, rejected, err := zipkin.Translate(data)
	if err != nil {
		return err
	}
	for _, r := range rejected {
		into.Reject(r.Reason, r.Detail, r.Spans)
	}
	return w.otlp.Protobuf(request, into)
}

// collect passes decoded chunks to take in the order of the input until r.done is closed.
func (r *pipeline) collect() error {
	waiting := make(map[int]*chunk) // decoded out of order
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
			r.free <- c // never blocks: the channel can hold all chunks
		}
	}
	return nil
}

// take counts and reports the broken parts of c and assembles its spans.
func (r *pipeline) take(c *chunk) error {
	r.input.Summary.Records += c.used
	sorting.SliceStable(c.broken, func(a, b InputError) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, b := range c.broken {
		if err := r.count(b); err != nil {
			return err
		}
	}
	if r.options.Decoded != nil {
		r.options.Decoded(c.path, &c.batch)
	}
	return r.input.assembler.Add(&c.batch)
}

// count counts and reports b, a broken part of the input. With Options.Strict, it returns b as an error.
func (r *pipeline) count(b InputError) error {
	if r.options.Strict {
		return b
	}
	if !errors.Is(b.Err, ErrCut) { // records before the cut are complete
		n := r.input.Summary.Rejected[b.Reason]
		if n.Spans += int64(b.Spans); b.Spans == 0 {
			n.Records++
		}
		r.input.Summary.Rejected[b.Reason] = n
	}
	if r.options.Report != nil {
		r.options.Report(b)
	}
	return nil
}

// maxKept is the maximum size in bytes of a buffer that is kept for reuse.
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

// split reads all sources and sends their records to the workers in chunks.
func (r *pipeline) split(ctx context.Context, sources []source) error {
	f := &filler{pipeline: r, stop: ctx.Done()}
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

// Callbacks of a splitter, for records and for broken sections of a stream. If a callback returns an error, splitting
// ends with that error.
type (
	recordFunc func(data []byte, f format, at position) error
	brokenFunc func(reason trace.Reason, err error, at position) error
)

// position is the start of a record or a broken section. line counts from 1, or is 0 if the input does not consist of
// lines. offset refers to the decompressed data if the file is compressed.
type position struct {
	line, offset int64
	decompressed bool
}

// failed returns the error for the part of path that starts at p.
func (p position) failed(path string, reason trace.Reason, err error) InputError {
	return InputError{
		Path:         path,
		Line:         p.line,
		Offset:       p.offset,
		Decompressed: p.decompressed,
		Reason:       reason,
		Err:          err,
	}
}

// splitFile splits s into records, unless it was found in a directory and contains no traces.
func (r *pipeline) splitFile(ctx context.Context, s source, record recordFunc, broken brokenFunc) (err error) {
	file, err := s.open(ctx, r.options.Stdin, &r.read)
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil && closed != nil {
			err = fmt.Errorf("close input: %w", closed)
		}
	}()
	split := &splitter{
		w:            newWindow(file, r.options.MaxRecord),
		record:       record,
		broken:       broken,
		decompressed: file.compressed,
	}
	head := split.w.peek(sniffSize)
	how := sniff(head)
	if s.listed && !holdsTraces(head, how, s.hasTraceExtension()) {
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
		return broken(trace.Malformed, errTrailing, split.at(0, split.w.offset()))
	case err == nil || errors.Is(err, io.EOF):
		return nil
	case file.raw.err != nil:
		return fmt.Errorf("read input %s: %w", s.path, file.raw.err)
	case file.compressed && errors.Is(err, split.w.err):
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return broken(trace.Malformed, ErrCut, split.at(0, split.w.offset()))
		}
		return broken(trace.Malformed, fmt.Errorf("decompress: %w", err), split.at(0, split.w.offset()))
	}
	return err
}

// filler packs records into chunks.
type filler struct {
	pipeline *pipeline
	stop     <-chan struct{}
	path     string
	chunk    *chunk // the chunk being filled; may be nil
	number   int
}

// room returns a chunk with room for n more bytes, or an empty chunk if n exceeds chunkSize. It waits for a free chunk,
// and returns errCanceled if reading is cancelled.
func (f *filler) room(n int) (*chunk, error) {
	if f.chunk != nil && len(f.chunk.data) > 0 && len(f.chunk.data)+n > chunkSize {
		if err := f.flush(); err != nil {
			return nil, err
		}
	}
	if f.chunk == nil {
		select {
		case f.chunk = <-f.pipeline.free:
		case <-f.stop:
			return nil, errCanceled
		}
		f.chunk.number, f.chunk.path = f.number, f.path
		f.number++
	}
	return f.chunk, nil
}

func (f *filler) record(data []byte, format format, at position) error {
	c, err := f.room(len(data))
	if err != nil {
		return err
	}
	start := len(c.data)
	c.data = append(c.data, data...)
	c.records = append(c.records, record{start, len(c.data), format, at})
	return nil
}

func (f *filler) broken(reason trace.Reason, err error, at position) error {
	c, full := f.room(0)
	if full != nil {
		return full
	}
	c.broken = append(c.broken, at.failed(f.path, reason, err))
	return nil
}

// flush sends the chunk being filled to the workers and reports progress. It returns errCanceled if reading is
// cancelled.
func (f *filler) flush() error {
	if f.chunk != nil {
		f.pipeline.chunks <- f.chunk // never blocks: the channel can hold all chunks
		f.chunk = nil
	}
	if f.pipeline.options.Progress != nil {
		f.pipeline.options.Progress(Progress{f.path, f.pipeline.read.Load(), f.pipeline.total.Load()})
	}
	select {
	case <-f.stop:
		return errCanceled
	default:
		return nil
	}
}
