package refusal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Every reason has a unique name, an HTTP status of 400 or more, and a gRPC code.
func TestReasons(t *testing.T) {
	seen := make(map[string]bool)
	for r := refusal.Overloaded; r <= refusal.Failed; r++ {
		e := refusal.New(r, "detail", "")
		if r.String() == "" || seen[r.String()] {
			t.Errorf("reason %d has the name %q", r, r)
		}
		seen[r.String()] = true
		if e.Code() < 400 || http.StatusText(e.Code()) == "" {
			t.Errorf("%s: status %d", r, e.Code())
		}
		if code := status.Code(e); code == codes.OK || code == codes.Unknown {
			t.Errorf("%s: gRPC code %s", r, code)
		}
	}
}

// errors.Is finds an Error by its reason, even if it is wrapped.
func TestIs(t *testing.T) {
	err := fmt.Errorf("take: %w", refusal.New(refusal.Overloaded, "the disk is full", ""))
	if !errors.Is(err, refusal.Overloaded) || errors.Is(err, refusal.Malformed) ||
		errors.Is(errors.New("overloaded"), refusal.Overloaded) {
		t.Error("errors.Is does not compare reasons")
	}
	if later := refusal.New(refusal.Conflict, "", "").Later(time.Second); !errors.Is(later, refusal.Conflict) ||
		later.After != time.Second {
		t.Errorf("later: %+v", later)
	}
}

// TestWrite checks that the hint is a field of the body, and that Retry-After is in whole seconds, rounded up.
func TestWrite(t *testing.T) {
	e := &refusal.Error{
		Reason: refusal.Overloaded,
		Detail: "too many requests",
		Hint:   "try again",
		After:  1100 * time.Millisecond,
		Status: http.StatusTooManyRequests,
		Header: http.Header{"Allow": {"GET"}},
	}
	w := httptest.NewRecorder()
	w.Header().Set("ETag", `"of another body"`)
	e.Write(w, e.Problem())
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "about:blank", "title": "Too Many Requests",
		"status": 429., "detail": "too many requests", "hint": "try again",
	}
	if diff := cmp.Diff(want, got); diff != "" || w.Code != http.StatusTooManyRequests {
		t.Errorf("%d, -want +got:\n%s", w.Code, diff)
	}
	header := http.Header{
		"Allow": {"GET"}, "Retry-After": {"2"}, "Content-Type": {refusal.ProblemType}, "Cache-Control": {"no-store"},
	}
	if diff := cmp.Diff(header, w.Header()); diff != "" {
		t.Errorf("header, -want +got:\n%s", diff)
	}
}

// TestGRPCStatus checks that the message is valid UTF-8 of bounded length, and that the delay is exact.
func TestGRPCStatus(t *testing.T) {
	e := &refusal.Error{
		Reason: refusal.Overloaded,
		Detail: "\xff" + strings.Repeat("x", 1000),
		After:  1500 * time.Millisecond,
	}
	st, ok := status.FromError(e)
	if !ok || st.Code() != codes.Unavailable || !utf8.ValidString(st.Message()) || len(st.Message()) != 511 {
		t.Errorf("%v", st)
	}
	details := st.Details()
	if len(details) != 1 {
		t.Fatalf("details: %v", details)
	}
	if retry, ok := details[0].(*errdetails.RetryInfo); !ok || retry.GetRetryDelay().AsDuration() != e.After {
		t.Errorf("wait: %v", details[0])
	}
	if st := refusal.Failure().GRPCStatus(); len(st.Details()) != 0 ||
		st.Message() != "internal error: Sibyl's log has the details" {
		t.Errorf("%v", st)
	}
}
