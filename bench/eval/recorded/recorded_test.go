package recorded

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
)

// requests writes n requests of a shop that calls a cart, one per second from the given second on. The cart takes slow
// ns longer.
func requests(out *strings.Builder, second, n int, slow int64) {
	for i := range n {
		id := second + i + 1
		at := int64(second+i) * 1e9
		span := func(service, name, id, parent string, kind int, start, end int64) string {
			return fmt.Sprintf(`{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":%q}}]},`+
				`"scopeSpans":[{"spans":[{"traceId":"%s","spanId":%q,"parentSpanId":%q,"name":%q,"kind":%d,`+
				`"startTimeUnixNano":"%d","endTimeUnixNano":"%d"}]}]}`,
				service, "TRACE", id, parent, name, kind, at+start, at+end)
		}
		line := `{"resourceSpans":[` + strings.Join([]string{
			span("shop", "GET /cart", "0000000000000001", "", 2, 0, 1000+slow),
			span("shop", "call", "0000000000000002", "0000000000000001", 3, 100, 900+slow),
			span("cart", "Get", "0000000000000003", "0000000000000002", 2, 200, 800+slow),
		}, ",") + "]}\n"
		out.WriteString(strings.ReplaceAll(line, "TRACE", fmt.Sprintf("%032x", id)))
	}
}

// set writes a case set and returns its directory.
func set(t *testing.T, name, traces, cases string) string {
	t.Helper()
	dir := t.TempDir()
	data := []byte(traces)
	if strings.HasSuffix(name, ".gz") {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Write(data)
		w.Close()
		data = b.Bytes()
	}
	for name, data := range map[string][]byte{name: data, CasesName: []byte(cases)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func ask(t *testing.T, dir string) (Report, error) {
	t.Helper()
	s, err := Read(t.Context(), dir, Options{Path: critpath.DefaultOptions()})
	if err != nil {
		return Report{}, err
	}
	return s.Localize(), nil
}

const labels = `{"name": "a", "fault": "slow", "start_unix_nano": "50000000000", "end_unix_nano": 60000000000, "target": {"service": "cart", "operation": "Get"}}

{"name": "b", "fault": "slow", "start_unix_nano": 90000000000, "end_unix_nano": "100000000000", "target": {"service": "shop", "detail": "wrong"}}
{"name": "c", "fault": "lost", "start_unix_nano": 900000000000, "end_unix_nano": 900000000000, "target": {"service": "cart"}}
`

func shop() string {
	var b strings.Builder
	requests(&b, 0, 50, 0)
	requests(&b, 50, 10, 500)
	requests(&b, 60, 30, 0)
	requests(&b, 90, 10, 250)
	return b.String()
}

func TestLocalize(t *testing.T) {
	for _, name := range []string{TracesName, TracesName + ".gz"} {
		r, err := ask(t, set(t, name, shop(), labels))
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		want := `{
 "cases": [
  {
   "name": "a",
   "fault": "slow",
   "ranking": [
    {
     "service": "cart",
     "operation": "Get",
     "score": 0.5
    },
    {
     "service": "shop",
     "operation": "",
     "score": 0
    }
   ],
   "rank_service": 1,
   "rank_operation": 1
  },
  {
   "name": "b",
   "fault": "slow",
   "ranking": [
    {
     "service": "cart",
     "operation": "Get",
     "score": 0.25
    },
    {
     "service": "shop",
     "operation": "",
     "score": 0
    }
   ],
   "rank_service": 2,
   "rank_operation": null
  },
  {
   "name": "c",
   "fault": "lost",
   "ranking": [],
   "rank_service": null,
   "rank_operation": null,
   "reason": "no trace begins in the window"
  }
 ],
 "top1": 0.3333333333333333,
 "top3": 0.6666666666666666,
 "top5": 0.6666666666666666,
 "by_fault": {
  "lost": {
   "cases": 1,
   "top1": 0,
   "top3": 0,
   "top5": 0
  },
  "slow": {
   "cases": 2,
   "top1": 0.5,
   "top3": 1,
   "top5": 1
  }
 }
}`
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestLabelsOnlyScore changes everything in the labels except the windows. The rankings must stay the same.
func TestLabelsOnlyScore(t *testing.T) {
	other := strings.NewReplacer("cart", "nobody", "shop", "somebody", "slow", "else", "Get", "Put").Replace(labels)
	a, err := ask(t, set(t, TracesName, shop(), labels))
	if err != nil {
		t.Fatal(err)
	}
	b, err := ask(t, set(t, TracesName, shop(), other))
	if err != nil {
		t.Fatal(err)
	}
	for i := range a.Cases {
		if diff := cmp.Diff(a.Cases[i].Ranking, b.Cases[i].Ranking); diff != "" {
			t.Error(diff)
		}
		if r := b.Cases[i].RankService; r != nil {
			t.Errorf("no suspect at rank %d", *r)
		}
	}
}

func TestNoHistory(t *testing.T) {
	const all = `{"name": "a", "fault": "slow", "start_unix_nano": 1, "end_unix_nano": 9000000000000, ` +
		`"target": {"service": "cart"}}`
	var b strings.Builder
	requests(&b, 1, 10, 0)
	r, err := ask(t, set(t, TracesName, b.String(), all))
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Cases[0]; len(c.Ranking) != 0 || c.Reason != "no trace begins outside of all windows" {
		t.Errorf("%+v", c)
	}
}

func TestReadErrors(t *testing.T) {
	const target = `"target": {"service": "cart"}`
	for _, c := range []struct{ cases, want string }{
		{"", "no known faults"},
		{"\n\n", "no known faults"},
		{"nonsense", ":1: malformed fault"},
		{`{"name": "a", "fault": "f", "start_unix_nano": 1, "end_unix_nano": 2, ` + target +
			"}\n{}", ":2: malformed fault: no name"},
		{`{"name": "a", "start_unix_nano": 1, "end_unix_nano": 2}`, "no target.service"},
		{`{"name": "a", "end_unix_nano": 2, ` + target + `}`, "no start_unix_nano"},
		{`{"name": "a", "start_unix_nano": 3, "end_unix_nano": 2, ` + target + `}`, "before start_unix_nano"},
		{`{"name": "a", "start_unix_nano": "soon", "end_unix_nano": 2, ` + target + `}`, `start_unix_nano is "soon"`},
		{`{"name": "a", "start_unix_nano": 1.5, "end_unix_nano": 2, ` + target + `}`, "start_unix_nano is 1.5"},
		{`{"name": "a", "start_unix_nano": -1, "end_unix_nano": 2, ` + target + `}`, "start_unix_nano is -1"},
	} {
		if _, err := ask(t, set(t, TracesName, shop(), c.cases)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("cases %q: error %v, want one with %q", c.cases, err, c.want)
		}
	}
	dir := t.TempDir()
	if _, err := ask(t, dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), CasesName) {
		t.Errorf("empty directory: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, CasesName), []byte(labels), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), TracesName) {
		t.Errorf("no traces: %v", err)
	}
}
