package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// sibyl services SERVICE shows one service, even if its name can't be part of a path. The error for an unknown
// service has a hint.
func TestServicesShowsOne(t *testing.T) {
	const load = `"now":{"calls":60,"rate":0.1,"failed":0,"own_ns":1,"p50_ns":1,"p99_ns":1},"usual":null`
	const service = `{"id":"0000000000000007","service":"pay/ment","state":"new","reason":"",` + load + `}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1/status":
			_, _ = io.WriteString(w, `{"ingest":{}}`)
		case "/api/v1/services":
			_, _ = io.WriteString(w, `{"items":[`+service+`]}`)
		case "/api/v1/services/0000000000000007":
			_, _ = io.WriteString(w,
				`{"service":`+service+`,"operations":[{"operation":"GET /charges","state":"new",`+load+`}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"status":404,"detail":"no such service"}`)
		}
	}))
	defer server.Close()
	if r := sibyl(t, "", "services", "pay/ment", "--server", server.URL); r.code != 0 ||
		!strings.Contains(r.out, "pay/ment") || !strings.Contains(r.out, "GET /charges") {
		t.Errorf("%+v", r)
	}
	r := sibyl(t, "", "services", "pay", "--server", server.URL)
	if r.code != 1 || !strings.Contains(r.err, `there is no service "pay"`) ||
		!strings.Contains(r.err, "sibyl services --query pay") {
		t.Errorf("unknown: %+v", r)
	}
}
