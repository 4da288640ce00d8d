package offline

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// TimeRange is a time range that may be relative to the times of traces that haven't been read yet. The zero value
// contains all times.
type TimeRange struct {
	text     string // as parsed
	from, to timePoint
}

// timePoint is one end of a [TimeRange].
type timePoint struct {
	kind  pointKind
	at    trace.Nanos   // if dated
	since time.Duration // if clock, since midnight UTC; if offset, since the first trace
}

type pointKind uint8

const (
	open   pointKind = iota // unbounded
	dated                   // date and time
	clock                   // time on a day of the traces
	offset                  // relative to the first trace
)

const day = 24 * time.Hour

// ParseTimeRange parses a range "FROM..TO", which includes FROM but excludes TO. Each end is a date and time as in RFC
// 3339, a time of day in UTC such as 02:41 or 02:41:30, or an offset from the first trace such as +10m. One end may be
// empty, which leaves the range unbounded there.
func ParseTimeRange(text string) (TimeRange, error) {
	from, to, found := strings.Cut(text, "..")
	if !found || from == "" && to == "" {
		return TimeRange{}, fmt.Errorf("%q: want FROM..TO, like 02:41..03:05, or 02:41.. without an end", text)
	}
	r := TimeRange{text: text}
	var err error
	if r.from, err = parsePoint(from); err != nil {
		return TimeRange{}, err
	}
	if r.to, err = parsePoint(to); err != nil {
		return TimeRange{}, err
	}
	if r.from.kind == r.to.kind && (r.from.kind == dated || r.from.kind == offset) &&
		(r.from.at > r.to.at || r.from.since > r.to.since) {
		return TimeRange{}, mixedUp(text)
	}
	return r, nil
}

// ErrOrder reports that a range ends before it starts.
var ErrOrder = errors.New("the range ends before it starts; write the earlier time first")

func mixedUp(text string) error { return fmt.Errorf("%s: %w", text, ErrOrder) }

func parsePoint(text string) (timePoint, error) {
	if text == "" {
		return timePoint{}, nil
	}
	if strings.HasPrefix(text, "+") {
		if d, err := time.ParseDuration(text[1:]); err == nil && d >= 0 {
			return timePoint{kind: offset, since: d}, nil
		}
		return timePoint{}, fmt.Errorf("%q: want an offset from the first trace, like +10m or +1h30m", text)
	}
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return timePoint{kind: clock, since: t.Sub(t.Truncate(day))}, nil
		}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return timePoint{}, fmt.Errorf("%q: want a time like 02:41, 02:41:30 (UTC), 2006-01-02T02:41:00Z, "+
			"or an offset from the first trace like +10m", text)
	}
	if t.Before(time.Unix(0, 0)) || t.After(time.Unix(0, int64(trace.MaxNanos))) {
		return timePoint{}, fmt.Errorf("%q: want a date between 1970 and 2255", text)
	}
	return timePoint{kind: dated, at: trace.Nanos(t.UnixNano())}, nil
}

// resolve returns the interval that r denotes for traces that start between first and last. It returns an error if r is
// ambiguous, and an error wrapping ErrOrder if the range ends before it starts.
func (r TimeRange) resolve(first, last trace.Nanos) (history.Interval, error) {
	i := history.Always()
	if r.from.kind != open {
		from, err := r.from.resolve(first, last)
		if err != nil {
			return i, err
		}
		i.From = from
	}
	switch several := midnight(first) != midnight(last); {
	case r.to.kind == open:
		return i, nil
	case r.to.kind == clock && r.from.kind != open && several:
		i.To = next(i.From, r.to.since)
		if i.To > last && i.To.Add(-day) >= first {
			return i, mixedUp(r.text)
		}
	default:
		to, err := r.to.resolve(first, last)
		if err != nil {
			return i, err
		}
		i.To = to
	}
	if i.To < i.From {
		return i, mixedUp(r.text)
	}
	return i, nil
}

// resolve returns the time of p, which must not be open. A time of day that occurs more than once between first and
// last is an error. If it doesn't occur at all, resolve returns the nearest occurrence.
func (p timePoint) resolve(first, last trace.Nanos) (trace.Nanos, error) {
	switch p.kind {
	case dated:
		return p.at, nil
	case offset:
		return first.Add(min(p.since, trace.MaxNanos.Sub(first))), nil
	case open, clock: // only clock gets here; open ends are not resolved
	}
	earliest := next(first, p.since)
	switch {
	case earliest <= last && earliest.Add(day) <= last:
		return 0, fmt.Errorf(
			"%s occurs on more than one day of the traces, which begin between %s and %s: write date and time, like %s",
			p.clock(), dateTime(first), dateTime(last), time.Unix(0, int64(earliest)).UTC().Format(time.RFC3339))
	case earliest <= last:
		return earliest, nil
	case midnight(first) == midnight(last):
		return midnight(first).Add(p.since), nil
	case first.Sub(earliest.Add(-day)) < earliest.Sub(last):
		return earliest.Add(-day), nil
	}
	return earliest, nil
}

func (p timePoint) clock() string { return time.Time{}.Add(p.since).Format(time.TimeOnly) }

// midnight returns the start of the day of t in UTC.
func midnight(t trace.Nanos) trace.Nanos { return t - t%trace.Nanos(day) }

// next returns the first time at or after t that is `since` after midnight UTC.
func next(t trace.Nanos, since time.Duration) trace.Nanos {
	if at := midnight(t).Add(since); at >= t {
		return at
	}
	return midnight(t).Add(day + since)
}

// dateTime formats t in UTC, to the second.
func dateTime(t trace.Nanos) string {
	return time.Unix(0, int64(t)).UTC().Format(time.DateTime)
}
