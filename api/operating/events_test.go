package operating

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// There is an event when an incident opens, changes or closes.
func TestChangeOf(t *testing.T) {
	known := knownIncident{suspect: 1, types: 2}
	for _, x := range []struct {
		isOpen, wasOpen bool
		now             knownIncident
		want            string
	}{
		{true, false, known, "opened"},
		{true, true, known, ""},
		{true, true, knownIncident{suspect: 3, types: 2}, "changed"},
		{true, true, knownIncident{suspect: 1, types: 7}, "changed"},
		{true, true, knownIncident{suspect: 1, types: 2, located: true}, ""}, // has a separate event
		{false, true, known, "closed"},
		{false, false, known, ""},
	} {
		if got := changeOf(x.isOpen, x.wasOpen, x.now, known); got != x.want {
			t.Errorf("%+v: %q, want %q", x, got, x.want)
		}
	}
}

// A reader that falls behind the buffer is reset.
func TestSlowReader(t *testing.T) {
	var h hub
	h.start(time.Unix(1, 0))
	epoch := []contract.Event{{Type: "epoch"}}
	for range bufferedEvents {
		h.publish(epoch)
	}
	if text, next, _, lost := h.since(0); lost || next != bufferedEvents ||
		strings.Count(text, "event: epoch") != bufferedEvents {
		t.Errorf("a full buffer: lost %v, next %d", lost, next)
	}
	h.publish(epoch)
	if _, _, _, lost := h.since(0); !lost {
		t.Error("lost is false after the buffer overflowed")
	}
	for id, want := range map[string]struct {
		number uint64
		missed bool
	}{
		"": {bufferedEvents + 1, false},
		fmt.Sprintf("%s-%d", h.run, bufferedEvents):   {bufferedEvents + 1, false},
		fmt.Sprintf("%s-%d", h.run, 1):                {2, false},
		fmt.Sprintf("%s-%d", h.run, 0):                {bufferedEvents + 1, true},
		fmt.Sprintf("%s-%d", h.run, bufferedEvents+1): {bufferedEvents + 1, true},
		"x-1":                           {bufferedEvents + 1, true},
		h.run + "-18446744073709551615": {bufferedEvents + 1, true},
		h.run:                           {bufferedEvents + 1, true},
	} {
		if number, missed := h.resume(id); number != want.number || missed != want.missed {
			t.Errorf("after %q: %d, %v", id, number, missed)
		}
	}
	for range maxStreams {
		if !h.enter() {
			t.Fatalf("refused a reader below the limit of %d", maxStreams)
		}
	}
	if h.enter() {
		t.Errorf("accepted a reader beyond the limit of %d", maxStreams)
	}
	h.leave(true)
	if streams, slow := h.readers(); streams != maxStreams-1 || slow != 1 {
		t.Errorf("got %d readers, %d too slow; want %d, 1", streams, slow, maxStreams-1)
	}
}
