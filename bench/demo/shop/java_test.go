package shop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// Every fault of the catalog in Java is in methods that exist in its source, under the names used there.
func TestJavaFaults(t *testing.T) {
	source := make(map[string]string) // by class
	files, err := filepath.Glob("../springcatalog/src/main/java/shop/catalog/*/*.java")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d classes, %v; want at least 60", len(files), err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source[strings.TrimSuffix(filepath.Base(name), ".java")] = string(data)
	}
	for _, kind := range JavaFaults() {
		for seed := range uint64(len(javaSites[kind])) {
			truth, err := javaFault(kind, seed)
			if err != nil {
				t.Fatal(err)
			}
			class, _, _ := strings.Cut(truth.Operation, ".")
			if want := `"` + string(kind) + `", "` + truth.Operation + `"`; !strings.Contains(source[class], want) {
				t.Errorf("%s does not contain %s", class, want)
			}
			for _, place := range append(truth.Inside, truth.Operation) {
				if strings.HasPrefix(place, "SELECT ") {
					continue // its statement
				}
				class, method, _ := strings.Cut(place, ".")
				if !strings.Contains(source[class], " "+method+"(") {
					t.Errorf("%s has no method %s", class, method)
				}
			}
		}
	}
	if _, err := javaFault(SlowPath, 1); err == nil {
		t.Error("a fault of the services in Go is one of the catalog in Java")
	}
}

// A called method and a statement are correct answers, too.
func TestJavaLocated(t *testing.T) {
	truth, err := javaFault(JavaNPlus1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for edge, want := range map[Edge]bool{
		{Service: "catalog", Operation: "OfferService.offersOf"}:                        true,
		{Service: "catalog", Operation: "SellerRepository.findById"}:                    true,
		{Service: "catalog", Operation: "SELECT catalog.sellers", Target: "h2 catalog"}: true,
		{Service: "catalog", Operation: "SELECT catalog", Target: "h2 catalog"}:         false,
		{Service: "catalog", Operation: "ListPage.show"}:                                false,
		{Service: "search", Operation: "OfferService.offersOf"}:                         false,
	} {
		if got := truth.Located(&edge); got != want {
			t.Errorf("%s: located %t, want %t", &edge, got, want)
		}
	}
}

// A relay passes spans on, and counts them, with separate numbers for tracepoints.
func TestSpanRelay(t *testing.T) {
	sink, err := startRelay(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sink.close() }()
	relay, err := startRelay(t.Context(), sink.address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = relay.close() }()
	traces := ptrace.NewTraces()
	spans := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	spans.AppendEmpty()
	spans.AppendEmpty().Attributes().PutStr(tracepointID, "catalog/x")
	if _, err := relay.Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(traces)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*spanRelay{relay, sink} {
		if r.spans.Load() != 2 || r.extra.Load() != 1 {
			t.Errorf("%d spans, %d of them extra; want 2, 1", r.spans.Load(), r.extra.Load())
		}
	}
}

// The services in Go ignore faults of the service in Java.
func TestJavaFaultElsewhere(t *testing.T) {
	for _, kind := range JavaFaults() {
		if injected, err := (&service{name: JavaService}).inject(t.Context(), &Injection{Fault: kind}); injected ||
			err != nil {
			t.Errorf("%s: injected %t, %v", kind, injected, err)
		}
	}
}
