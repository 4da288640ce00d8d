// Command corpus makes the traces in testdata. They come from a simulated application in which one host of one service is slow;
// testdata/README.md says what there is to find. The same source gives the same bytes.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/sibyl-trace/sibyl/internal/simapp"
	"github.com/sibyl-trace/sibyl/internal/wire"
	"github.com/sibyl-trace/sibyl/trace"
)

//go:generate go run . ../../testdata

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(1)
	}
}

// config is the application: steady but for its fault, so that the report of the corpus is easy to follow.
var config = simapp.Config{
	Seed: 23, Fault: simapp.Host, Strength: 2, Tracepoints: 250, Services: 9, Rate: 20, Optional: 0.05, Caches: -1,
}

// Extent of the corpus.
const (
	begin  = trace.Nanos(1_790_000_000_000_000_000) // in September 2026
	length = 60 * time.Second
	batch  = 20 // traces a line
	few    = 12 // traces of the small set
)

// run writes all files into the folder that args names.
func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: corpus FOLDER")
	}
	app := simapp.New(config)
	app.Inject(begin)
	traces := collect(app)
	fmt.Fprintf(out, "%d traces; to be found: %s\n", len(traces), app.Target().Text)
	files, err := encode(traces, app.Table())
	if err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(args[0], name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// collect returns copies of the traces of all requests.
func collect(app *simapp.App) []*trace.Trace {
	var traces []*trace.Trace
	for t := range app.Requests(begin, begin.Add(length), nil) {
		c := &trace.Trace{ID: t.ID}
		c.Append(t)
		traces = append(traces, c)
	}
	return traces
}

// encode returns the files by name: the corpus, and its first traces in every format.
func encode(traces []*trace.Trace, table *trace.Table) (map[string][]byte, error) {
	corpus, err := lines(traces, table)
	if err != nil {
		return nil, err
	}
	small := traces[:few]
	jsonl, err := lines(small, table)
	if err != nil {
		return nil, err
	}
	protobuf, err := wire.Protobuf(small, table)
	if err != nil {
		return nil, err
	}
	jaeger, err := wire.Jaeger(small, table)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"small.otlp.jsonl": jsonl, "small.otlp.pb": protobuf}
	for name, data := range map[string][]byte{"shop.otlp.jsonl.gz": corpus, "small.otlp.jsonl.gz": jsonl, "small.jaeger.json.gz": jaeger} {
		if files[name], err = gzipped(data); err != nil {
			return nil, err
		}
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	files["small.otlp.pb.zst"] = z.EncodeAll(protobuf, nil)
	return files, z.Close()
}

// lines returns traces as OTLP requests in JSON, one a line.
func lines(traces []*trace.Trace, table *trace.Table) ([]byte, error) {
	var out bytes.Buffer
	for len(traces) > 0 {
		n := min(batch, len(traces))
		doc, err := wire.JSON(traces[:n], table)
		if err != nil {
			return nil, err
		}
		out.Write(doc)
		out.WriteByte('\n')
		traces = traces[n:]
	}
	return out.Bytes(), nil
}

// gzipped compresses with a library whose version the module pins: the standard library's output changes between releases.
func gzipped(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
