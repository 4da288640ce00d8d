package trace_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

func TestNormalName(t *testing.T) {
	for name, want := range map[string]string{
		"GET /cart":            "GET /cart",
		"GET /cart/17/items/2": "GET /cart/{}/items/{}",
		"/users/0190163d-8694-739b-aea5-966c26f8ad91": "/users/{}",
		"blob 5f4dcc3b5aa765d61d8327deb882cf99":       "blob {}",
		"deadbeef":                                    "deadbeef", // no digit: a word
		"cafe1234":                                    "{}",
		"s3 v2 md5sum x86_64":                         "s3 v2 md5sum x86_64",
		"1-2-3":                                       "{}",
		"é1":                                          "é1",
		"a1b2":                                        "a1b2", // too short to be a hash
		"/{}/7":                                       "/{}/{}",
		"OrderService.java#343":                       "OrderService.java#343", // a location in code
		"Order_1#17":                                  "Order_1#17",
		"order 7#343":                                 "order {}#{}",
		"Foo#1234567":                                 "Foo#{}", // no file is that long
		"#17":                                         "#{}",
		"":                                            "",

		"GET /search?q=shoes&page=2":                 "GET /search",
		"GET /search?q=shoes HTTP":                   "GET /search HTTP",
		"SELECT a FROM t WHERE b = ? AND c = ?":      "SELECT a FROM t WHERE b = ? AND c = ?",
		"what? 1":                                    "what? {}",
		"/users/al.b+c@example.org/orders":           "/users/{}/orders",
		"/account/al%40example.org":                  "/account/{}",
		"/app@1.17.2/index.js":                       "/app@{}.{}.{}/index.js",
		"/find/caf%C3%A9":                            "/find/{}",
		"100% of 7":                                  "{}% of {}",
		"SELECT * FROM t WHERE n = 'it''s' AND m=''": "SELECT * FROM t WHERE n = {} AND m={}",
		"select a from t where n = 'cut o":           "select a from t where n = {}",
		"Bob's 2 orders":                             "Bob's {} orders",
		"/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV":           "/jobs/{}",
		"/jobs/01arz3ndektsv4rrffq69g5fav":           "/jobs/{}",
		"/s/zA78Cl8":                                 "/s/{}",
		"GET session:zA78Cl8":                        "GET session:{}",
		"/customers/cus_9s6XKzkNRiz8i3":              "/customers/cus_{}",
		"/api/products/OLJCESPC7Z":                   "/api/products/{}",
		"/apis/apps/v1beta1/utf8mb4/log4j2":          "/apis/apps/v1beta1/utf8mb4/log4j2",
		"Http2Server.handle i18nKey OAuth2Callback":  "Http2Server.handle i18nKey OAuth2Callback",
		"/i18nKeys/x509Certificate/findById2":        "/i18nKeys/x509Certificate/findById2",
		"/p2pTransfer/SHA256/UTF8":                   "/p2pTransfer/SHA256/UTF8",
	} {
		if got := string(trace.NormalName([]byte(name), nil)); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestNormalNameIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := []byte(rapid.StringMatching(`([0-9a-g/{}é_. -]{0,5}|[0-9a-f-]{8,12}|#[0-9]{1,3}|SELECT |['?@%:]{1,2}|`+
			`%4[0-9]|[a-z@.]{5}|[0-9A-Za-z]{6,12}){0,6}`).Draw(t, "name"))
		before := slices.Clone(name)
		once := slices.Clone(trace.NormalName(name, nil))
		if twice := trace.NormalName(once, nil); string(twice) != string(once) {
			t.Errorf("%q becomes %q, then %q", name, once, twice)
		}
		if !slices.Equal(name, before) {
			t.Errorf("the name was changed")
		}
	})
}

func TestParseID(t *testing.T) {
	id, err := trace.ParseID("00000000000000000123456789ABCDEF")
	if err != nil || id.String() != "00000000000000000123456789abcdef" {
		t.Errorf("%v, %v", id, err)
	}
	if short, err := trace.ParseID("0123456789abcdef"); err != nil || short != id {
		t.Errorf("16 digits: %v, %v", short, err)
	}
	if id.Compare(trace.ID{15: 1}) != 1 || id.Compare(id) != 0 {
		t.Error("order")
	}
	for _, bad := range []string{
		"", "0", strings.Repeat("0", 32), strings.Repeat("0", 16), strings.Repeat("g", 32),
		strings.Repeat("1", 33),
	} {
		if id, err := trace.ParseID(bad); !errors.Is(err, trace.ErrBadID) || !id.IsZero() {
			t.Errorf("%q: %v, %v", bad, id, err)
		}
	}
}

func TestSpanIDString(t *testing.T) {
	if got := trace.SpanID(255).String(); got != "00000000000000ff" {
		t.Errorf("%q", got)
	}
}

func TestKinds(t *testing.T) {
	for k := trace.Unspecified; k <= trace.Consumer; k++ {
		if back, ok := trace.ParseKind(k.String()); !ok || back != k {
			t.Errorf("%d is %q is %d", k, k, back)
		}
	}
	if trace.Kind(200).String() != "unspecified" {
		t.Error("an invalid kind has a name")
	}
}

// Append must renumber attributes and joins along with their spans.
func TestAppend(t *testing.T) {
	var table trace.Table
	const first, second = "a s x server 0..9 k=1\n", "b s y client 1..2 parent=a l=2 join=a\n"
	parse := func(text string) *trace.Trace {
		parsed, err := tracetext.Parse(text, &table)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	got := parse(first)
	got.Append(parse(second))
	if diff := cmp.Diff(parse(first+second), got); diff != "" {
		t.Error(diff)
	}
	got.Reset()
	if len(got.Spans)+len(got.Attrs)+len(got.Joins) != 0 || !got.ID.IsZero() {
		t.Errorf("after Reset: %v", got)
	}
}
