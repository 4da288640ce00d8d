package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"
)

// Query selects entries. The zero value of a field matches all entries.
type Query struct {
	From, To  time.Time // From is inclusive, To exclusive
	Who       string    // name or subject
	Operation string
	After     string // Next of the previous page
	Limit     int    // number of entries; at least 1
}

// selects reports whether e matches q.
func (q *Query) selects(e *Entry) bool {
	return (q.From.IsZero() || !e.At.Before(q.From)) && (q.To.IsZero() || e.At.Before(q.To)) &&
		(q.Who == "" || q.Who == e.Who || q.Who == e.Subject) && (q.Operation == "" || q.Operation == e.Operation)
}

// Page is a part of the log.
type Page struct {
	Entries    []Entry // latest first
	Next       string  // for [Query.After]; empty: this is the last page
	Unreadable int     // number of damaged lines that were skipped
}

// ErrCursor is the error for a [Query.After] that isn't the Next of any page.
var ErrCursor = errors.New("this is no cursor of the audit log")

// position is the position of a line in a series. The zero value is before all lines.
type position struct {
	number int // of the file
	offset int // of the line in the file
}

// end is the position after all lines.
var end = position{math.MaxInt, 0}

func (p position) before(q position) bool {
	return p.number < q.number || p.number == q.number && p.offset < q.offset
}

// List returns the entries that q selects, latest first. It returns ErrCursor if q.After is invalid.
func (l *Log) List(ctx context.Context, q Query) (Page, error) {
	var readers []*reader
	for _, s := range l.all() {
		readers = append(readers, &reader{s: s, before: end})
	}
	if q.After != "" && !resume(readers, q.After) {
		return Page{}, ErrCursor
	}
	for _, r := range readers {
		if err := r.start(ctx, q.From); err != nil {
			return Page{}, err
		}
	}
	p := Page{Entries: []Entry{}}
	for {
		r := latest(readers)
		if r == nil {
			break
		}
		if q.selects(&r.entry) {
			if len(p.Entries) == q.Limit {
				p.Next = cursor(readers)
				break
			}
			p.Entries = append(p.Entries, r.entry)
		}
		if err := r.next(ctx); err != nil {
			return Page{}, err
		}
	}
	for _, r := range readers {
		p.Unreadable += r.unreadable
	}
	return p, nil
}

// latest returns the reader with the latest current entry, or nil if all have reached their ends.
func latest(readers []*reader) (found *reader) {
	for _, r := range readers {
		if r.some && (found == nil || r.entry.At.After(found.entry.At)) {
			found = r
		}
	}
	return found
}

// cursor returns the positions of readers as text.
func cursor(readers []*reader) string {
	var parts []string
	for _, r := range readers {
		parts = append(parts, fmt.Sprintf("%d.%d", r.before.number, r.before.offset))
	}
	return strings.Join(parts, "-")
}

// resume sets the positions of readers from the cursor in text. It reports whether text is a cursor.
func resume(readers []*reader, text string) bool {
	parts := strings.Split(text, "-")
	if len(parts) != len(readers) {
		return false
	}
	for i, r := range readers {
		if _, err := fmt.Sscanf(parts[i], "%d.%d", &r.before.number, &r.before.offset); err != nil {
			return false
		}
	}
	return true
}

// reader reads the entries of a series from the end.
type reader struct {
	s       *series
	since   time.Time        // files that were last written before this time are not read
	numbers []int            // files that have not been read; the last one is read next
	number  int              // file that is being read
	data    []byte           // the lines of that file that have not been read
	done    map[string]*line // outcomes, by ID, of entries that have not been read

	entry      Entry    // the current entry
	at         position // of the current entry
	some       bool     // whether there is a current entry
	before     position // only entries before it are read; next moves it to the current entry
	unreadable int
}

// coarse is an upper bound on the lag of a file's modification time behind the clock.
const coarse = time.Second

// start makes the last entry the current one.
func (r *reader) start(ctx context.Context, since time.Time) error {
	numbers, err := r.s.numbers()
	if err != nil {
		return err
	}
	if r.before == end && len(numbers) > 0 { // later pages should not contain entries written from now on
		info, err := os.Stat(r.s.path(numbers[len(numbers)-1]))
		switch {
		case err == nil:
			r.before = position{numbers[len(numbers)-1], int(info.Size())}
		case !errors.Is(err, fs.ErrNotExist): // otherwise it has just become too old
			return err
		}
	}
	for len(numbers) > 0 && numbers[len(numbers)-1]-1 > r.before.number { // the next file may have an outcome
		numbers = numbers[:len(numbers)-1]
	}
	r.numbers, r.since, r.done, r.at = numbers, since.Add(-coarse), make(map[string]*line), r.before
	return r.next(ctx)
}

// next moves r from the current entry to the one before it.
func (r *reader) next(ctx context.Context) error {
	r.before = r.at
	for {
		if len(r.data) == 0 {
			if more, err := r.load(ctx); !more || err != nil {
				r.some = false
				return err
			}
			continue
		}
		offset := bytes.LastIndexByte(r.data[:len(r.data)-1], '\n') + 1
		text, at := r.data[offset:len(r.data)-1], position{r.number, offset}
		r.data = r.data[:offset]
		x := &line{}
		switch err := json.Unmarshal(text, x); {
		case err != nil || x.Done == "" && x.ID == "":
			if at.before(r.before) {
				r.unreadable++
			}
			continue
		case x.Done != "":
			r.done[x.Done] = x
			continue
		}
		outcome := r.done[x.ID]
		delete(r.done, x.ID)
		if !at.before(r.before) {
			continue
		}
		r.entry, r.at, r.some = x.Entry, at, true
		if outcome != nil {
			r.entry.Status = outcome.Status
			if outcome.On != "" {
				r.entry.On = outcome.On
			}
		}
		return nil
	}
}

// load reads the complete lines of the next file. It reports whether there is such a file.
func (r *reader) load(ctx context.Context) (more bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if len(r.numbers) == 0 {
		return false, nil
	}
	r.number = r.numbers[len(r.numbers)-1]
	r.numbers = r.numbers[:len(r.numbers)-1]
	path := r.s.path(r.number)
	info, err := os.Stat(path)
	if err == nil && info.ModTime().Before(r.since) {
		r.numbers = nil
		return false, nil
	}
	if err == nil {
		r.data, err = os.ReadFile(path)
	}
	if errors.Is(err, fs.ErrNotExist) { // it has just become too old
		r.numbers = nil
		return false, nil
	}
	r.data = r.data[:bytes.LastIndexByte(r.data, '\n')+1] // the rest is being written
	return true, err
}
