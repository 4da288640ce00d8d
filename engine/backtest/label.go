package backtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

// Label describes a known fault to compare incidents with.
type Label struct {
	Name   string
	Fault  string // kind of fault, for totals by kind
	Window history.Interval
	Target Target
}

// Target is the location of a fault.
type Target struct {
	Service   string `json:"service"`
	Operation string `json:"operation"` // empty if not labelled
	Detail    string `json:"detail"`    // text for people
}

// ErrNoLabels reports that a label file contains no labels.
var ErrNoLabels = errors.New("no known faults, want one JSON object per line")

// maxLabelLine is the maximum length of a line in a label file, in bytes.
const maxLabelLine = 1 << 20

// maxLabels is the maximum size of a label file, in bytes.
const maxLabels = 256 << 20

// ReadLabels reads a label file with one JSON object per line. The file may be compressed, and path may be
// [file.Stdin]. Errors about the contents name the line.
func ReadLabels(ctx context.Context, path string, stdin io.Reader) ([]Label, error) {
	data, err := file.Contents(ctx, path, stdin, maxLabels)
	if err != nil {
		return nil, fmt.Errorf("known faults: %w", err)
	}
	return ParseLabels(path, data)
}

// ParseLabels parses data, the contents of a label file. path is only used in errors. The error wraps [ErrNoLabels] if
// there are no labels.
func ParseLabels(path string, data []byte) ([]Label, error) {
	var labels []Label
	known := make(map[Label]int) // line of each label
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxLabelLine)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		l, err := parseLabel(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: malformed fault: %w", path, n, err)
		}
		if first := known[l]; first != 0 { // the fault would be counted twice
			return nil, fmt.Errorf("%s:%d: fault %q is a copy of line %d: leave it out", path, n, l.Name, first)
		}
		known[l] = n
		labels = append(labels, l)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", path, n+1, err)
	}
	if len(labels) == 0 {
		return nil, fmt.Errorf("%s: %w", path, ErrNoLabels)
	}
	return labels, nil
}

// during returns the labels that lie at least partly in the recorded time, and the names of the other labels. It
// returns an error if all labels lie outside, or if a label starts so early that its time must be in another unit.
func during(labels []Label, recorded history.Interval) (within []Label, outside []string, err error) {
	for _, l := range labels {
		w := l.Window
		switch {
		case w.From < recorded.From/2:
			return nil, nil, fmt.Errorf("fault %q begins at %s UTC, and the traces at %s: want nanoseconds since 1970",
				l.Name, date(w.From), date(recorded.From))
		case w.To < recorded.From || w.From > recorded.To:
			outside = append(outside, l.Name)
		default:
			within = append(within, l)
		}
	}
	if len(within) == 0 && len(outside) > 0 {
		return nil, nil,
			fmt.Errorf("no known fault lies in the time of the traces, from %s to %s UTC; the first begins at %s",
				date(recorded.From), date(recorded.To), date(labels[0].Window.From))
	}
	return within, outside, nil
}

func date(t trace.Nanos) string { return time.Unix(0, int64(t)).UTC().Format(time.DateTime) }

func parseLabel(line []byte) (l Label, err error) {
	var fields struct {
		Name   string          `json:"name"`
		Fault  string          `json:"fault"`
		Start  json.RawMessage `json:"start_unix_nano"`
		End    json.RawMessage `json:"end_unix_nano"`
		Target Target          `json:"target"`
	}
	if err := json.Unmarshal(line, &fields); err != nil {
		return l, expected(err)
	}
	l = Label{Name: fields.Name, Fault: fields.Fault, Target: fields.Target}
	switch {
	case l.Name == "":
		return l, errors.New("no name")
	case l.Target.Service == "":
		return l, errors.New("no target.service")
	}
	if l.Window.From, err = parseTime("start_unix_nano", fields.Start); err != nil {
		return l, err
	}
	if l.Window.To, err = parseTime("end_unix_nano", fields.End); err != nil {
		return l, err
	}
	if l.Window.To < l.Window.From {
		return l, fmt.Errorf("end_unix_nano %d lies before start_unix_nano %d", l.Window.To, l.Window.From)
	}
	return l, nil
}

// expected replaces an error of encoding/json, which names Go types, with a description of the expected value.
func expected(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return fmt.Errorf("want a JSON object on one line: %w", err)
	case wrong.Field == "":
		return fmt.Errorf("want a JSON object on one line, got %s", wrong.Value)
	case wrong.Type.Kind() == reflect.String:
		return fmt.Errorf("%s is of type %s, want string", wrong.Field, wrong.Value)
	}
	return fmt.Errorf("%s is of type %s, want object", wrong.Field, wrong.Value)
}

// parseTime parses a time given as a number, or as a string because some languages round numbers of this size.
func parseTime(field string, text json.RawMessage) (trace.Nanos, error) {
	switch string(text) {
	case "", "0", `"0"`, "null":
		return 0, errors.New("no " + field)
	}
	v, err := json.Number(strings.Trim(string(text), `"`)).Int64()
	if err != nil || v < 0 || trace.Nanos(v) > trace.MaxNanos {
		return 0, fmt.Errorf("%s is %s: want nanoseconds since 1970", field, text)
	}
	return trace.Nanos(v), nil
}
