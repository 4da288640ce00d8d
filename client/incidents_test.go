package client

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// The time in the sentence of an incident is in the local zone, like the times next to it.
func TestLocalTimes(t *testing.T) {
	defer func(zone *time.Location) { time.Local = zone }(time.Local)
	time.Local = time.FixedZone("", 2*3600)
	at := func(text string) time.Time {
		x, err := time.Parse(time.DateTime, text)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	now := at("2026-01-02 03:00:00")
	for _, c := range []struct{ onset, ended, sentence, want string }{
		{
			"2026-01-02 02:41:20", "", "Requests take 9 % longer since 02:41; all of it is time in cart.",
			"Requests take 9 % longer since 04:41; all of it is time in cart.",
		},
		{
			"2026-01-01 20:41:20", "", "More requests fail since 2026-01-01 20:41: errors",
			"More requests fail since 2026-01-01 22:41: errors",
		},
		{
			"2026-01-01 22:41:20", "", "More requests fail since 2026-01-01 22:41: errors",
			"More requests fail since 00:41: errors",
		},
		{
			"2026-01-02 02:41:20", "2026-01-02 02:56:10", "It differs between 02:41 and 02:56: between 02:41 and 02:56",
			"It differs between 04:41 and 04:56: between 02:41 and 02:56",
		},
		{
			"2026-01-01 20:41:20", "2026-01-01 23:59:10", "It differs between 20:41 and 23:59: a",
			"It differs between 2026-01-01 22:41 and 2026-01-02 01:59: a",
		},
		{
			"2026-01-01 20:41:20", "2026-01-02 00:29:10", "It differs between 2026-01-01 20:41 and 2026-01-02 00:29: a",
			"It differs between 2026-01-01 22:41 and 2026-01-02 02:29: a",
		},
		{
			"2026-01-02 02:41:20", "", "A sentence of a later version since 02:40",
			"A sentence of a later version since 02:40",
		},
		{"2026-01-02 02:41:20", "", "Nothing", "Nothing"},
	} {
		x := &contract.Incident{Onset: at(c.onset), Sentence: c.sentence}
		if c.ended != "" {
			x.Ended = new(at(c.ended))
		}
		if got := localTimes(x, now); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
