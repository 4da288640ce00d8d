package wild

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/trace"
)

// Write writes the traces of seed to the file traces as OTLP in JSON lines, compressed if its name ends in .gz. It
// writes the faults to the file truth, as labels for a backtest.
func Write(ctx context.Context, seed uint64, traces, truth string) error {
	return newGenerator(seed).writeFiles(ctx, traces, truth)
}

// Requests passes the first n traces of a seed to do, each as an OTLP request in protobuf with the time of its end, in
// the order of their ends. It returns the error of do.
func Requests(seed uint64, n int, do func(end trace.Nanos, request []byte) error) error {
	err := newGenerator(seed).run(func(end trace.Nanos, _ *recorded, data []byte) error {
		if n--; n < 0 {
			return errEnough
		}
		return do(end, data)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

var errEnough = errors.New("enough traces")

func (g *generator) writeFiles(ctx context.Context, traces, truth string) (err error) {
	f, err := os.Create(traces)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<20)
	if strings.HasSuffix(traces, ".gz") {
		z := gzip.NewWriter(out)
		err = errors.Join(g.write(ctx, z), z.Close())
	} else {
		err = g.write(ctx, out)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	labels, err := g.labels()
	if err != nil {
		return err
	}
	return os.WriteFile(truth, labels, 0o600)
}

// write writes the traces, one per line.
func (g *generator) write(ctx context.Context, out io.Writer) error {
	return g.run(func(_ trace.Nanos, _ *recorded, data []byte) error {
		t, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		if err != nil {
			return err
		}
		line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(t)
		if err != nil {
			return err
		}
		_, err = out.Write(append(line, '\n'))
		return cmp.Or(err, context.Cause(ctx))
	})
}

// labels returns the faults as labels, one per line. The service of a label is one name of its place. The detail
// contains the place and the harmless event before the fault.
func (g *generator) labels() ([]byte, error) {
	var lines []byte
	for i, f := range g.faults {
		label := map[string]any{
			"name":            fmt.Sprintf("%02d-%s", i+1, f.kind),
			"fault":           f.kind,
			"start_unix_nano": int64(f.window.From),
			"end_unix_nano":   int64(f.window.To),
			"target":          map[string]string{"service": f.place.name(), "detail": f.detail + ", after " + f.after},
		}
		line, err := json.Marshal(label)
		if err != nil {
			return nil, err
		}
		lines = append(append(lines, line...), '\n')
	}
	return lines, nil
}

// name returns one name of the place.
func (p *place) name() string {
	switch {
	case len(p.services) > 0:
		return p.services[len(p.services)-1]
	case p.backend != nil:
		return strings.TrimSpace(p.backend.system + " " + p.backend.host)
	}
	return p.node.name
}
