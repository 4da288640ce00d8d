package main

import (
	"context"
	"io"
	"testing"
)

// cancelling ends its context when it is first written to, as somebody does who has seen enough.
type cancelling struct{ cancel context.CancelFunc }

func (w cancelling) Write(p []byte) (int, error) {
	w.cancel()
	return len(p), nil
}

func TestTraceStopsWhenInterruptedWhileWriting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	args := []string{"trace", "-o", "json", "../../testdata/shop.otlp.jsonl.gz"}
	code := run(ctx, args, func(string) string { return "" }, nil, cancelling{cancel}, io.Discard)
	if code != exitError {
		t.Errorf("exit code %d after an interrupt, want %d", code, exitError)
	}
}
