package ingest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// A set finds only its own keys and the keys of the tracepoint protocol.
func TestKeys(t *testing.T) {
	protocol := []string{trace.KeyTracepoint, trace.KeyPlan, trace.KeyArm, trace.KeyJoin}
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringN(1, 20, -1), 0, ingest.MaxKeys, rapid.ID).Draw(t, "names")
		keys, err := ingest.NewKeys(names...)
		if err != nil {
			t.Fatal(err)
		}
		places := make(map[int]bool)
		for _, name := range append(names, protocol...) {
			place := keys.Find([]byte(name))
			if place == ingest.Unwanted || places[place] {
				t.Fatalf("%q found at %d of %v", name, place, places)
			}
			places[place] = true
		}
		other := rapid.String().Filter(func(s string) bool {
			return !slices.Contains(append(names, protocol...), s)
		}).Draw(t, "other")
		if keys.Find([]byte(other)) != ingest.Unwanted {
			t.Fatalf("%q found", other)
		}
		if other != "" && ingest.AllKeys().Find([]byte(other)) == ingest.Unwanted {
			t.Fatalf("%q not found among all", other)
		}
	})
}

func TestTooManyKeys(t *testing.T) {
	var names []string
	for i := range ingest.MaxKeys {
		names = append(names, fmt.Sprint(i))
	}
	if _, err := ingest.NewKeys(append(names, "0", "")...); err != nil {
		t.Errorf("%d keys: %v", len(names), err)
	}
	if _, err := ingest.NewKeys(append(names, "x")...); err == nil {
		t.Errorf("%d keys: no error", len(names)+1)
	}
	names = append(names, names...)
	for i := range 1000 {
		names = append(names, fmt.Sprint("many", i))
	}
	if _, err := ingest.NewKeys(names...); err == nil {
		t.Error("a thousand keys: no error")
	}
}

// An operation is the same with and without the cache, and matches the dictionary.
func TestOp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cached := ingest.Names{Table: &trace.Table{}}
		for range rapid.IntRange(1, 50).Draw(t, "n") {
			service := cached.Symbol([]byte(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "service")))
			name := []byte(rapid.SampledFrom([]string{"", "GET /", "GET /12", "GET /13", "\xff"}).Draw(t, "name"))
			kind := trace.Kind(rapid.IntRange(0, 5).Draw(t, "kind"))
			op := cached.Op(service, name, kind)
			fresh := ingest.Names{Table: &trace.Table{}}
			if want := fresh.Op(service, name, kind); op != want {
				t.Fatalf("cached %x, fresh %x", op, want)
			}
			o := cached.Table.Operation(op)
			normal := strings.ToValidUTF8(string(trace.NormalName(name, nil)), "\uFFFD")
			if o.Service != service || o.Kind != kind || cached.Table.Text(o.Name) != normal {
				t.Fatalf("%q became %+v, %q", name, o, cached.Table.Text(o.Name))
			}
		}
	})
}

// Values are truncated at a character boundary and are valid UTF-8. Their symbol is the symbol of the stored text.
func TestValue(t *testing.T) {
	names := ingest.Names{Table: &trace.Table{}}
	for text, want := range map[string]string{
		"x":                          "x",
		"a\xffb":                     "a\uFFFDb",
		strings.Repeat("x", 10<<20):  strings.Repeat("x", ingest.MaxValue),
		strings.Repeat("€", 1000):    strings.Repeat("€", ingest.MaxValue/3),
		strings.Repeat("\xff", 5000): "\uFFFD",
		"":                           "",
	} {
		for range 2 {
			sym := names.Value(0, []byte(text))
			got := names.Table.Text(sym)
			if got != want || sym != trace.SymbolOf([]byte(want)) || !utf8.ValidString(got) {
				t.Errorf("%.20q of %d bytes became %.20q of %d bytes", text, len(text), got, len(got))
			}
		}
	}
}

// A long name, such as a query, is shortened visibly and at a character boundary, whether or not a route completes it.
// Its span is kept.
func TestLongNames(t *testing.T) {
	keys, err := ingest.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		strings.Repeat("x", ingest.MaxName),
		strings.Repeat("x", ingest.MaxName+1), strings.Repeat("é ", 1<<20),
	} {
		for _, route := range []string{"", "/cart"} {
			table := &trace.Table{}
			b := ingest.NewBuilder(table, keys)
			var batch ingest.Batch
			b.Begin(&batch)
			b.ResourceText([]byte("service.name"), []byte(name))
			b.Span()
			b.ID, b.Trace, b.Name, b.Start, b.End, b.Kind = []byte("spanspan"),
				[]byte("tracetracetracet"), []byte(name), 1, 2, trace.Server
			b.Attr(keys.Find([]byte("http.route")), []byte("http.route"), ingest.Value{Text: []byte(route)})
			b.EndSpan()
			if len(batch.Spans) != 1 || len(batch.Rejected) != 0 {
				t.Fatalf("%d spans, rejected %+v", len(batch.Spans), batch.Rejected)
			}
			op := batch.Spans[0].Op
			for _, got := range []string{table.OpName(op), table.ServiceName(op)} {
				shortened := len(name) > ingest.MaxName || route != "" && got == table.OpName(op)
				if len(got) > ingest.MaxName || !utf8.ValidString(got) || strings.Contains(got, "…") != shortened {
					t.Errorf("a name of %d bytes became one of %d, ending with %q",
						len(name), len(got), got[len(got)-20:])
				}
			}
			if !strings.HasSuffix(table.OpName(op), route) {
				t.Errorf("the route is missing from %q", table.OpName(op)[len(table.OpName(op))-20:])
			}
		}
	}
}

// A key with too many values only loses the text of its own further values, and these are counted. Once the builder
// has forgotten the names, the key has room again.
func TestValuesOfKey(t *testing.T) {
	keys, err := ingest.NewKeys("user.id", "tier")
	if err != nil {
		t.Fatal(err)
	}
	table := &trace.Table{Limit: 1000}
	b := ingest.NewBuilder(table, keys)
	add := func(name, key, value string) trace.Symbol {
		var batch ingest.Batch
		b.Begin(&batch)
		b.ResourceText([]byte("service.name"), []byte("shop"))
		b.Span()
		b.ID, b.Trace, b.Name, b.Start, b.End = []byte("spanspan"), []byte("tracetracetracet"), []byte(name), 1, 2
		b.Attr(keys.Find([]byte(key)), []byte(key), ingest.Value{Text: []byte(value)})
		b.EndSpan()
		if got := table.OpName(batch.Spans[0].Op); got != name {
			t.Errorf("operation %q is named %q", name, got)
		}
		return batch.Attrs[0].Text
	}
	const users = 2000
	named := 0
	for i := range users {
		if sym := add("GET /", "user.id", fmt.Sprintf("u%dx", i)); table.Contains(sym) {
			named++
		}
	}
	if named < 10 || named > 100 {
		t.Errorf("%d of %d values have a name, want an equal part of half of the dictionary", named, users)
	}
	if sym := add("POST /", "tier", "gold"); table.Text(sym) != "gold" {
		t.Errorf("the value of another key is %q", table.Text(sym))
	}
	unnamed := maps.Collect(b.Unnamed())
	if want := map[string]uint64{"user.id": uint64(users - named)}; !cmp.Equal(unnamed, want) {
		t.Errorf("values without a name %v, want %v", unnamed, want)
	}
	for range b.Unnamed() {
		t.Error("values were counted twice")
	}
	b.Forget()
	if sym := add("GET /", "user.id", "later"); table.Text(sym) != "later" ||
		!table.Contains(trace.SymbolOf([]byte("user.id"))) {
		t.Errorf("after the names were forgotten, a value is %q", table.Text(sym))
	}
}

// Rollback restores a batch.
func TestRollback(t *testing.T) {
	b := ingest.Batch{
		Traces:   []trace.ID{{1}},
		Spans:    []trace.Span{{ID: 1}},
		Attrs:    []trace.Attr{{Key: 1}},
		Joins:    []trace.Join{{Linked: 1}},
		Versions: []ingest.VersionStart{{ServiceVersion: ingest.ServiceVersion{Service: 1, Version: 2}}},
	}
	b.Reject(trace.BadTime, "first", 2)
	mark := b.Mark()
	want := ingest.Batch{
		Traces:   []trace.ID{{1}},
		Spans:    []trace.Span{{ID: 1}},
		Attrs:    []trace.Attr{{Key: 1}},
		Joins:    []trace.Join{{Linked: 1}},
		Versions: []ingest.VersionStart{{ServiceVersion: ingest.ServiceVersion{Service: 1, Version: 2}}},
		Rejected: []ingest.Rejection{{Reason: trace.BadTime, Detail: "first", Spans: 2}},
	}
	b.Traces, b.Spans = append(b.Traces, trace.ID{2}), append(b.Spans, trace.Span{ID: 2})
	b.Attrs, b.Joins = append(b.Attrs, trace.Attr{}), append(b.Joins, trace.Join{})
	b.Versions = append(b.Versions, ingest.VersionStart{ServiceVersion: ingest.ServiceVersion{Service: 1, Version: 3}})
	b.Reject(trace.BadTime, "second", 1)
	b.Reject(trace.TooLarge, "third", 1)
	if b.RejectedSpans() != 4 {
		t.Errorf("%d spans rejected, want 4", b.RejectedSpans())
	}
	b.Rollback(mark)
	if diff := cmp.Diff(want, b); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	if diff := cmp.Diff(ingest.Batch{}, b, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}
