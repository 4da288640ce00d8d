package offline

import (
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

func at(t *testing.T, text string) trace.Nanos {
	t.Helper()
	x, err := time.Parse(time.DateTime, text)
	if err != nil {
		t.Fatal(err)
	}
	return trace.Nanos(x.UnixNano())
}

func TestTimeRange(t *testing.T) {
	always := history.Always()
	for _, c := range []struct {
		first, last string // of the traces
		text        string
		from, to    string // empty: unbounded
		err         string
	}{
		{
			"2026-01-01 10:00:00", "2026-01-01 12:00:00",
			"11:00..11:30:15", "2026-01-01 11:00:00", "2026-01-01 11:30:15", "",
		},
		{"2026-01-01 10:00:00", "2026-01-01 12:00:00", "11:00..", "2026-01-01 11:00:00", "", ""},
		{"2026-01-01 10:00:00", "2026-01-01 12:00:00", "..11:00", "", "2026-01-01 11:00:00", ""},
		{
			"2026-01-01 10:00:00", "2026-01-01 12:00:00",
			"09:00..13:00", "2026-01-01 09:00:00", "2026-01-01 13:00:00", "",
		},
		{"2026-01-01 10:00:00", "2026-01-01 12:00:00", "+10m..+1h", "2026-01-01 10:10:00", "2026-01-01 11:00:00", ""},
		{"2026-01-01 10:00:00", "2026-01-01 12:00:00", "11:00..+90m", "2026-01-01 11:00:00", "2026-01-01 11:30:00", ""},
		{
			"2026-01-01 10:00:00", "2026-01-01 12:00:00",
			"2026-01-01T12:00:00+01:00..11:30", "2026-01-01 11:00:00", "2026-01-01 11:30:00", "",
		},
		{"2026-01-01 10:00:00", "2026-01-01 12:00:00", "11:30..11:00", "", "", "write the earlier time first"},
		{"2026-01-01 10:00:00", "2026-01-01 12:00:00", "11:30..+1h", "", "", "write the earlier time first"},
		// Across midnight.
		{
			"2026-01-01 23:00:00", "2026-01-02 01:00:00",
			"23:50..00:10", "2026-01-01 23:50:00", "2026-01-02 00:10:00", "",
		},
		{
			"2026-01-01 23:00:00", "2026-01-02 01:00:00",
			"22:50..00:10", "2026-01-01 22:50:00", "2026-01-02 00:10:00", "",
		},
		{
			"2026-01-01 23:00:00", "2026-01-02 01:00:00",
			"00:10..01:10", "2026-01-02 00:10:00", "2026-01-02 01:10:00", "",
		},
		{"2026-01-01 23:00:00", "2026-01-02 01:00:00", "01:10..", "2026-01-02 01:10:00", "", ""},
		{"2026-01-01 23:00:00", "2026-01-02 01:00:00", "..00:30", "", "2026-01-02 00:30:00", ""},
		{"2026-01-01 23:00:00", "2026-01-02 01:00:00", "00:10..23:50", "", "", "write the earlier time first"},
		// Several days.
		{"2026-01-01 10:00:00", "2026-01-03 09:00:00", "11:00..12:00", "", "", "11:00:00 occurs on more than one day " +
			"of the traces, which begin between 2026-01-01 10:00:00 and 2026-01-03 09:00:00: write date and time, " +
			"like 2026-01-01T11:00:00Z"},
		{"2026-01-01 10:00:00", "2026-01-03 09:00:00", "..12:00", "", "", "more than one day"},
		{
			"2026-01-01 10:00:00", "2026-01-02 09:00:00",
			"11:00..12:00", "2026-01-01 11:00:00", "2026-01-01 12:00:00", "",
		},
		{
			"2026-01-01 10:00:00", "2026-01-03 09:00:00",
			"2026-01-02T11:00:00Z..12:00", "2026-01-02 11:00:00", "2026-01-02 12:00:00", "",
		},
	} {
		r, err := ParseTimeRange(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, err := r.resolve(at(t, c.first), at(t, c.last))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got error %v, want one with %q", c.text, err, c.err)
			}
			continue
		}
		want := always
		if c.from != "" {
			want.From = at(t, c.from)
		}
		if c.to != "" {
			want.To = at(t, c.to)
		}
		if err != nil || got != want {
			t.Errorf("%s: got %s to %s, %v; want %s to %s",
				c.text, dateTime(got.From), dateTime(got.To), err, c.from, c.to)
		}
	}
}

func TestParseTimeRangeErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":            "want FROM..TO",
		"..":          "want FROM..TO",
		"02:41":       "want FROM..TO",
		"02:41-03:05": "want FROM..TO",
		"25:00..":     `"25:00": want a time like 02:41`,
		"02:41..03":   `"03": want a time like 02:41`,
		"+x..":        "want an offset",
		"+-5m..":      "want an offset",
		"+2h..+1h":    "write the earlier time first",
		"2026-01-02T00:00:00Z..2026-01-01T00:00:00Z": "write the earlier time first",
		"1960-01-02T00:00:00Z..":                     "between 1970 and 2255",
		"9999-01-02T00:00:00Z..":                     "between 1970 and 2255",
		"a..b..c":                                    "want a time",
	} {
		if _, err := ParseTimeRange(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want one with %q", text, err, want)
		}
	}
}

func FuzzParseTimeRange(f *testing.F) {
	f.Add("02:41..+10m", int64(1e18), int64(1e15))
	f.Fuzz(func(t *testing.T, text string, first, length int64) {
		r, err := ParseTimeRange(text)
		if (err != nil) != (r == TimeRange{}) {
			t.Fatalf("%q: %+v, %v", text, r, err)
		}
		if err != nil || first < 0 || length < 0 || length > 1e18 || first > 8e18 {
			return
		}
		if i, err := r.resolve(trace.Nanos(first), trace.Nanos(first+length)); err == nil && i.To < i.From {
			t.Fatalf("%q: %+v", text, i)
		}
	})
}
