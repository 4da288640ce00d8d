package server

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine"
)

// The configured memory limits the number of groups, even if every request has a new name.
func TestGroupsFitIntoMemory(t *testing.T) {
	env := volatile(t.TempDir())
	for key, value := range map[string]string{
		"MEMORY": "64MiB", "OTLP_MAX_REQUEST": "4MiB", "ASSEMBLY_TIMEOUT": "1s",
	} {
		env["SIBYL_"+key] = value
	}
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	s := started(t, e, new(slog.LevelVar), io.Discard)
	most := e.Config.Engine().Groups.Groups
	otlp := s.Addresses().HTTP
	now := time.Now().UnixNano()
	var spans []string
	for i := range most { // each trace creates a request type and a group
		spans = append(spans, fmt.Sprintf(`{
			"traceId":"%032x","spanId":"%016[1]x","name":"GET /x%sy","startTimeUnixNano":%d,"endTimeUnixNano":%d
		}`, i+1, word(i), now, now+1e6))
	}
	body := `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Join(spans, ",") + `]}]}]}`
	r, err := http.Post("http://"+otlp.String()+"/v1/traces", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	eventually(t, "requests are refused", func() bool {
		var refused uint64
		var groups int
		err := s.main.live.Ask(t.Context(), func(core *engine.View) {
			refused, groups = core.Groups.Refused, core.Groups.Len()
		})
		if err != nil {
			t.Fatal(err)
		}
		if groups > most {
			t.Fatalf("got %d groups, want at most %d", groups, most)
		}
		return refused > 0
	})
}

// word returns a name without digits, since numbers in names are replaced.
func word(n int) string {
	var b strings.Builder
	for ; n > 0; n /= 26 {
		b.WriteByte(byte('a' + n%26))
	}
	return b.String()
}
