package telemetry

import (
	"context"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// Limits on logs.
const (
	maxLines    = 50   // similar lines count as one
	fetchLines  = 1000 // error lines, and as many lines of any kind
	maxLine     = 500  // bytes
	logsBefore  = time.Minute
	errorFilter = ` |~ "(?i)error|exception|fatal|panic|critical"`
)

// lokiAnswer is the response of Loki's query_range.
type lokiAnswer struct {
	Data struct {
		Result []struct {
			Stream map[string]string
			Values [][]json.RawMessage // time in nanoseconds, and line
		}
	}
}

// logs returns at most maxLines log lines of a service, from logsBefore before the onset: first errors, then other
// lines, both newest first. It merges lines that differ only in numbers, times and IDs.
func (b *Backends) logs(ctx context.Context, q *Question) ([]contract.LogLine, error) {
	all := []contract.LogLine{}
	errorsOnly, err := b.lines(ctx, q, errorFilter)
	if err == nil {
		all = alike(errorsOnly, true)
	}
	if err == nil && len(all) < maxLines {
		var others []contract.LogLine
		others, err = b.lines(ctx, q, "")
		others = slices.DeleteFunc(others, func(x contract.LogLine) bool {
			return slices.ContainsFunc(errorsOnly, func(y contract.LogLine) bool { return x == y })
		})
		all = append(all, alike(others, false)...)
	}
	return all[:min(len(all), maxLines)], err
}

// lines fetches the latest fetchLines lines that match filter, newest first.
func (b *Backends) lines(ctx context.Context, q *Question, filter string) ([]contract.LogLine, error) {
	var answer lokiAnswer
	err := b.get(ctx, &b.options.Loki, "/loki/api/v1/query_range", url.Values{
		"query":     {q.expand(b.options.LogQuery) + filter},
		"start":     {strconv.FormatInt(q.Onset.Add(-logsBefore).UnixNano(), 10)},
		"end":       {strconv.FormatInt(q.To.UnixNano(), 10)},
		"limit":     {strconv.Itoa(fetchLines)},
		"direction": {"backward"},
	}, &answer)
	var all []contract.LogLine
	for _, r := range answer.Data.Result {
		for _, v := range r.Values {
			var at, text string
			if len(v) < 2 || json.Unmarshal(v[0], &at) != nil || json.Unmarshal(v[1], &text) != nil {
				continue
			}
			ns, _ := strconv.ParseInt(at, 10, 64)
			text = strings.ToValidUTF8(text[:min(len(text), maxLine)], "")
			all = append(all, contract.LogLine{At: time.Unix(0, ns).UTC(), Text: text, Count: 1})
		}
	}
	slices.SortStableFunc(all, func(x, y contract.LogLine) int { return y.At.Compare(x.At) })
	return all, err
}

// variable matches the parts of a line that may differ between similar lines: numbers, times and IDs.
var variable = regexp.MustCompile(`\b[0-9a-fA-F]{8,}(-[0-9a-fA-F]+)*\b|[0-9]+`)

// alike merges similar lines into the newest of them, which gets their count. lines must be ordered newest first.
func alike(lines []contract.LogLine, areErrors bool) []contract.LogLine {
	merged, index := []contract.LogLine{}, make(map[string]int)
	for _, x := range lines {
		form := variable.ReplaceAllLiteralString(x.Text, "#")
		i, known := index[form]
		if !known {
			x.Error = areErrors
			index[form] = len(merged)
			merged = append(merged, x)
			continue
		}
		merged[i].Count++
	}
	return merged
}
