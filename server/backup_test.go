package server

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
)

// A backup that is made while the service accepts traces, takes checkpoints and trims its journal has every trace that
// was acknowledged before, even if the service was killed and its data is lost. It replaces the previous backup.
func TestBackup(t *testing.T) {
	t.Parallel()
	v := newProcess(t, t.TempDir())
	v.more = []string{"--assembly-timeout", "2s"}
	notes := filepath.Join(v.dir, "notes.json")
	if err := os.WriteFile(notes, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v.start()
	v.ready()
	e, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(v.grpc), otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	var acked atomic.Uint64
	ctx, stop := context.WithCancel(t.Context())
	var sender sync.WaitGroup
	sender.Go(func() {
		for ctx.Err() == nil {
			if err := exportTrace(t.Context(), e, acked.Load()); err != nil {
				t.Error(err)
				return
			}
			acked.Add(1)
			time.Sleep(2 * time.Millisecond)
		}
	})
	backUp := func() (dir string) {
		t.Helper()
		r, err := http.Post("http://"+v.api+"/api/v1/backup", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var made struct{ Directory string }
		if err := json.NewDecoder(r.Body).Decode(&made); err != nil || r.StatusCode != http.StatusOK ||
			made.Directory != filepath.Join(v.dir, "backup") {
			t.Fatalf("%d %+v %v; the server's log:\n%s", r.StatusCode, made, err, v.logged())
		}
		return made.Directory
	}
	time.Sleep(2 * time.Second)
	backUp()
	time.Sleep(8 * time.Second)
	before := acked.Load()
	dir := backUp()
	after := acked.Load()
	time.Sleep(time.Second)
	stop()
	sender.Wait()
	v.end(os.Kill)

	restored := newProcess(t, t.TempDir())
	restored.more = v.more
	if err := os.CopyFS(restored.dir, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(v.dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes.json", "audit/changes-000001.jsonl"} {
		if _, err := os.Stat(filepath.Join(restored.dir, name)); err != nil {
			t.Error(err)
		}
	}
	restored.start()
	restored.ready()
	defer restored.end(os.Kill)
	n := uint64(0)
	for deadline := time.Now().Add(time.Minute); n < before && time.Now().Before(deadline); n = restored.groups() {
		time.Sleep(100 * time.Millisecond) // traces close once they have settled
	}
	if n < before || n > after+1 {
		t.Errorf("%d traces are in the backup, want from %d, which were acknowledged before it, to %d",
			n, before, after+1)
	}
}
