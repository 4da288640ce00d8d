package report

import (
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/trace"
)

// coverage returns sentences about the spans in c that aren't part of ordinary requests, and a warning if too few are
// judged. It returns nil if there is nothing to report.
func (n *names) coverage(c *trace.Coverage) []string {
	texts := describe.Coverage(n.Names, c)
	if saw, do := describe.Uncovered(n.Names, c); saw != "" {
		texts = append(texts, saw+" "+do)
	}
	return texts
}

// writeCoverage writes the sentences about c, one per line.
func (t *table) writeCoverage(c *trace.Coverage) {
	for _, text := range t.names.coverage(c) {
		var s describe.Sentence
		s.Plain(text)
		t.printf("%s", wrap(t.style, s, 0))
	}
}

type jsonCoverage struct {
	jsonAccounts
	Spans      float64 `json:"share_of_spans"` // share of spans judged, 0–1; duplicates do not count
	Time       float64 `json:"share_of_time"`
	Warning    string  `json:"warning"` // empty if enough is judged
	Remedy     string  `json:"remedy"`
	Traces     int64   `json:"traces"`
	Incomplete int64   `json:"incomplete"` // judged traces in which a span's parent is missing
	// Records counts the records of the input that were read, and Unread, by reason, the records that could not be
	// read.
	Records  int64                  `json:"records"`
	Unread   map[trace.Reason]int64 `json:"unread_records"`
	Services []jsonService          `json:"services"` // most time excluded first; "" if unknown
	Hops     []jsonMissingHop       `json:"hops_without_spans"`
}

// jsonAccounts accounts for received spans. Received is the sum of the other parts except Long. The spans of Long are
// also in another part, but without their time.
type jsonAccounts struct {
	Received trace.Part                  `json:"received"`
	Requests trace.Part                  `json:"requests"`
	Own      trace.Part                  `json:"requests_of_their_own"`
	Left     map[trace.Reason]trace.Part `json:"left_out"`
	Long     trace.Part                  `json:"long"`
}

type jsonService struct {
	Service string `json:"service"`
	jsonAccounts
}

type jsonMissingHop struct {
	Caller   string `json:"caller"`
	Callee   string `json:"callee"`
	Hop      string `json:"hop"` // the caller's name for it; "" if unknown
	Requests int64  `json:"requests"`
}

func newJSONAccounts(a *trace.Accounts) jsonAccounts {
	j := jsonAccounts{
		Received: a.Received(),
		Requests: a.Requests,
		Own:      a.Own,
		Left:     a.Left,
		Long:     a.Long,
	}
	if j.Left == nil {
		j.Left = map[trace.Reason]trace.Part{}
	}
	return j
}

func (n *names) jsonCoverage(c *trace.Coverage) jsonCoverage {
	total := c.Total()
	j := jsonCoverage{
		jsonAccounts: newJSONAccounts(&total),
		Traces:       c.Traces,
		Incomplete:   c.Incomplete,
		Records:      c.Records,
		Unread:       c.Unread,
		Services:     []jsonService{},
		Hops:         []jsonMissingHop{},
	}
	if j.Unread == nil {
		j.Unread = map[trace.Reason]int64{}
	}
	j.Spans, j.Time = total.Shares()
	j.Warning, j.Remedy = describe.Uncovered(n.Names, c)
	for s, a := range c.Services() {
		j.Services = append(j.Services, jsonService{n.Table.Text(s), newJSONAccounts(a)})
	}
	for h, x := range c.Hops(n.Table, c) {
		j.Hops = append(j.Hops,
			jsonMissingHop{n.Table.Text(h.Caller), n.Table.Text(h.Callee), n.Table.ServiceName(x.Peer), x.Requests})
	}
	return j
}
