package control

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Messages are decoded as encoding/json decodes them.
func TestDecode(t *testing.T) {
	outcomes := []protocol.Outcome{
		{
			ID:     "shop/ü\"",
			State:  protocol.Failed,
			Reason: `no "function"`,
			Hits:   1 << 63,
			Drops:  2,
			Nanos:  1.5e3,
			Bytes:  7,
		},
		{ID: "shop/b", State: protocol.Applied},
	}
	for _, s := range []*protocol.Status{
		{
			Protocol:    1,
			Session:     "s",
			Version:     1<<53 - 1,
			Hash:        "4bdb2acb21055e30fb8b565e3062a12e",
			Error:       "e",
			Tracepoints: outcomes,
		},
		{Protocol: 1, Session: "s"},
	} {
		body, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeStatus(body)
		if diff := cmp.Diff(s, got); diff != "" || err != nil {
			t.Errorf("%s: %s %v", body, diff, err)
		}
	}
	const more = ` {"protocol":1, "session":"s", "later":[{}], "error":null,
		"tracepoints":[{"id":"a","state":"applied","reason":null,"x":{"y":1}}]} `
	if s, err := decodeStatus([]byte(more)); err != nil || len(s.Tracepoints) != 1 || s.Tracepoints[0].ID != "a" {
		t.Errorf("%+v %v", s, err)
	}
	p := New(nil, Options{})
	for _, body := range []string{
		"", "x", "[]", "{", "{}x", "{}{}", `{"session":1}`, `{"session":"s",}`, `{"protocol":"1"}`, `{"protocol":1.5}`,
	} {
		_, err := decodeStatus([]byte(body))
		if _, is := err.(*refusal.Error); !is { //nolint:errorlint // errors are not wrapped
			t.Errorf("status %q: %v", body, err)
		}
		_, err = p.decodeRegistration([]byte(body))
		if _, is := err.(*refusal.Error); !is { //nolint:errorlint // as above
			t.Errorf("registration %q: %v", body, err)
		}
	}
}

// FuzzDecode checks that decoding doesn't panic, and that a decoded status is unchanged by a round trip through
// encoding/json.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"protocol":1,"session":"s","version":3,"hash":"4bdb2acb21055e30fb8b565e3062a12e",
		"tracepoints":[{"id":"a","state":"applied","hits":5,"cost_ns":1e3}]}`))
	f.Add([]byte(`{"protocol":1,"session":"s","catalogue":{"hash":"4bdb2acb21055e30fb8b565e3062a12e","size":0}}`))
	p := New(nil, Options{})
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = p.decodeRegistration(body) // must not panic
		s, err := decodeStatus(body)
		if err != nil {
			return
		}
		written, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeStatus(written)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, again); diff != "" && len(s.Tracepoints) > 0 {
			t.Error(diff)
		}
	})
}

func BenchmarkDecodeStatus(b *testing.B) {
	s := protocol.Status{Protocol: 1, Session: "session", Version: 7}
	for i := range 50 {
		s.Tracepoints = append(s.Tracepoints, protocol.Outcome{
			ID:    "service-01/step.0001",
			State: protocol.Applied,
			Hits:  uint64(i),
			Nanos: 900,
			Bytes: 220,
		})
	}
	body, err := json.Marshal(&s)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := decodeStatus(body); err != nil {
			b.Fatal(err)
		}
	}
}
