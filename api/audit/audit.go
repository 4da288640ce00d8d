// Package audit keeps the audit log: who changed what, when and from where. The log consists of files with JSON lines
// in the data directory. Lines are only appended, and are on disk when the functions that write them return.
//
// A change has two lines: [Log.Start] writes the entry before the change, and [Log.Finish] writes the outcome before
// the response. Every change has an entry, even if the process is killed in between; the entry then has no status.
// Requests that change nothing, such as refused ones, are counted, and equal ones share one line per minute. They and
// log-ins have files of their own, so that a flood of either can't fill the disk or displace changes.
//
// Several processes may write to the same log: a lock on its directory serialises them.
package audit

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// Entry is a change, or several counted requests. The zero value of a field means that it is unknown or does not apply.
type Entry = contract.AuditEntry

// line is a line of a file: an entry or, if Done isn't empty, the outcome of the entry with this ID. An outcome may set
// On if it wasn't known when the entry was written.
type line struct {
	Entry
	Done string `json:"done"`
}

// outcome is a line with the outcome of an entry.
type outcome struct {
	At     time.Time `json:"at"`
	Done   string    `json:"done"`
	Status int       `json:"status"`
	On     string    `json:"on,omitempty"`
}

// DirName is the name of the log's directory in the data directory.
const DirName = "audit"

// Limits of a log. When the files of a series together exceed their limit, the oldest is deleted.
const (
	maxFile    = 4 << 20  // bytes of a file, after which the next one is started
	maxChanges = 64 << 20 // bytes of all files with changes
	maxLogins  = 16 << 20 // bytes of all files with log-ins
	maxCounted = 16 << 20 // bytes of all files with counted requests
	maxKinds   = 20       // kinds of counted requests in a minute; further kinds are counted as [other]
	maxUnknown = 10       // kinds of counted requests from unknown callers
)

// other is the operation of counted requests beyond maxKinds.
const other = "(other)"

// Log is an audit log. It is safe for concurrent use.
type Log struct {
	clock func() time.Time
	log   *slog.Logger
	age   atomic.Int64 // duration after which entries are deleted; 0: never

	changes, logins, counted series

	mu     sync.Mutex      // guards minute
	minute map[Entry]int64 // numbers of counted requests since the last flush; the keys have no ID, time or count

	failed, torn atomic.Int64
}

// Open returns the audit log in the data directory dataDir. Its directory needn't exist: the first entry creates it.
func Open(dataDir string, clock func() time.Time, log *slog.Logger) *Log {
	dir := filepath.Join(dataDir, DirName)
	return &Log{
		clock:   clock,
		log:     log,
		changes: series{dir: dir, name: "changes", file: maxFile, total: maxChanges},
		logins:  series{dir: dir, name: "logins", file: maxFile, total: maxLogins},
		counted: series{dir: dir, name: "counted", file: maxFile, total: maxCounted},
		minute:  make(map[Entry]int64),
	}
}

// all returns the series of l.
func (l *Log) all() []*series { return []*series{&l.changes, &l.logins, &l.counted} }

// Exists reports whether the data directory dataDir contains an audit log, or an empty directory for one.
func Exists(dataDir string) bool {
	l := Open(dataDir, time.Now, slog.New(slog.DiscardHandler))
	entries, err := os.ReadDir(l.changes.dir)
	return err == nil && len(entries) == 0 || slices.ContainsFunc(l.all(), func(s *series) bool {
		numbers, _ := s.numbers() // a directory that can't be read isn't ours
		return len(numbers) > 0
	})
}

// Backup copies the log to the data directory dataDir on the same file system, with hard links for files that no longer
// change.
func (l *Log) Backup(dataDir string) error {
	to := filepath.Join(dataDir, DirName)
	for _, s := range l.all() {
		if err := s.backup(to); err != nil {
			return err
		}
	}
	return nil
}

// Keep sets the age at which entries are deleted. Entries age only while Run is running.
func (l *Log) Keep(age time.Duration) { l.age.Store(int64(age)) }

// Failed returns the number of lines that could not be written.
func (l *Log) Failed() int64 { return l.failed.Load() }

// Torn returns the number of incomplete lines that were cut off. A crash during a write leaves one.
func (l *Log) Torn() int64 { return l.torn.Load() }

// Start writes the entry e of a change that is about to be made, and returns the ID for [Log.Finish]. It sets the ID
// and the time of e. If it returns an error, the entry isn't in the log, so the change should not be made.
func (l *Log) Start(e Entry) (id string, err error) { return l.enter(&l.changes, e) }

// LogIn writes the entry e of a log-in, with its outcome. If it returns an error, the entry isn't in the log, so the
// person should get no session.
func (l *Log) LogIn(e Entry) error {
	_, err := l.enter(&l.logins, e)
	return err
}

// enter sets the ID and the time of e, and writes it to s.
func (l *Log) enter(s *series, e Entry) (id string, err error) {
	e.ID, e.At = newID(), l.now()
	bound(&e)
	if err := l.write(s, e); err != nil {
		l.log.Error("an audit entry cannot be written",
			slog.String("who", e.Who), slog.String("from", e.From), slog.String("operation", e.Operation),
			slog.String("on", e.On), slog.Any("error", err))
		return "", err
	}
	return e.ID, nil
}

// Finish writes the outcome of the change whose entry has the given ID. The outcome consists of the status and, if the
// resource wasn't known at the start, of the resource. Errors are only logged, because the change has already been
// made. If id is empty, Finish does nothing.
func (l *Log) Finish(id string, status int, on string) {
	if id == "" {
		return
	}
	if err := l.write(&l.changes, outcome{l.now(), id, status, on}); err != nil {
		l.log.Error("the outcome of an audit entry cannot be written",
			slog.String("id", id), slog.Int("status", status), slog.Any("error", err))
	}
}

// Count counts a request that changes nothing. Requests with equal entries share one entry per minute.
func (l *Log) Count(e Entry) {
	bound(&e)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(e, 1)
}

// add counts n requests with the entry e. The caller must hold mu.
func (l *Log) add(e Entry, n int64) {
	if _, known := l.minute[e]; !known && l.full(&e) {
		e = Entry{Operation: other, Status: e.Status}
	}
	l.minute[e] += n
}

// full reports whether there is no room for e, which isn't in l.minute yet. Unknown callers can claim to be forwarded
// for any address, so they must not use up the room of other callers. The caller must hold mu.
func (l *Log) full(e *Entry) bool {
	unknown := 0
	for kind := range l.minute {
		if kind.Who == "" && kind.Operation != other {
			unknown++
		}
	}
	return len(l.minute) >= maxKinds || e.Who == "" && unknown >= maxUnknown
}

// trimInterval is the interval between deletions of old entries. When the service stops, the time since the last
// deletion isn't added to the ages of files.
const trimInterval = time.Hour

// Run writes counted requests every minute, and deletes old entries, until ctx is done.
func (l *Log) Run(ctx context.Context) {
	minute, trim := time.NewTicker(time.Minute), time.NewTicker(trimInterval)
	defer minute.Stop()
	defer trim.Stop()
	for {
		select {
		case <-minute.C:
			l.Flush()
		case <-trim.C:
			l.trim()
		case <-ctx.Done():
			l.Flush()
			return
		}
	}
}

// Flush writes the counted requests. If that fails, they remain for the next flush.
func (l *Log) Flush() {
	l.mu.Lock()
	counted := l.minute
	l.minute = make(map[Entry]int64)
	l.mu.Unlock()
	if len(counted) == 0 {
		return
	}
	lines := make([]any, 0, len(counted))
	for e, n := range counted {
		e.ID, e.At, e.Count = newID(), l.now(), n
		lines = append(lines, e)
	}
	if err := l.write(&l.counted, lines...); err != nil {
		l.log.Error("counted audit entries cannot be written yet", slog.Any("error", err))
		l.mu.Lock()
		defer l.mu.Unlock()
		for e, n := range counted {
			l.add(e, n)
		}
	}
}

// trim adds trimInterval to the ages of all files, and deletes old files.
func (l *Log) trim() {
	age := time.Duration(l.age.Load())
	if age == 0 {
		return
	}
	dir := l.changes.dir
	old, err := readAges(dir)
	if err != nil {
		l.log.Error("the ages of audit entries are unknown, so they begin anew", slog.Any("error", err))
	}
	next := make(ages)
	for _, s := range l.all() {
		if err := s.trim(old, next, age); err != nil {
			l.log.Error("old audit entries cannot be deleted", slog.Any("error", err))
		}
	}
	if len(next) == 0 {
		return
	}
	if err := next.write(dir); err != nil {
		l.log.Error("the ages of audit entries cannot be stored", slog.Any("error", err))
	}
}

// write appends all lines to s, or nothing if it returns an error.
func (l *Log) write(s *series, lines ...any) error {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	for _, x := range lines {
		if err := out.Encode(x); err != nil {
			panic(err) // entries can be encoded
		}
	}
	done, err := s.append(text.Bytes())
	if done.cut > 0 {
		l.torn.Add(1)
		l.log.Warn("an incomplete line at the end of the audit log was cut off: a crash leaves one",
			slog.Int64("bytes", done.cut))
	}
	if done.deleted != "" {
		l.log.Warn("the audit log is full: its oldest entries were deleted", slog.String("file", done.deleted))
	}
	if err != nil {
		l.failed.Add(int64(len(lines)))
		return fmt.Errorf("write the audit log: %w", err)
	}
	return nil
}

// now returns the current time, truncated to milliseconds, for an entry.
func (l *Log) now() time.Time { return l.clock().UTC().Truncate(time.Millisecond) }

func newID() string {
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // never fails
	return hex.EncodeToString(bits[:])
}

// Limits on the lengths of texts in bytes.
const (
	maxText   = 256
	maxDetail = 1024
)

// bound shortens the texts of e.
func bound(e *Entry) {
	texts := []*string{&e.Who, &e.Role, &e.Subject, &e.Issuer, &e.Via, &e.From, &e.ForwardedFor, &e.Operation, &e.On}
	for _, text := range texts {
		*text = shorten(*text, maxText)
	}
	e.Detail = shorten(e.Detail, maxDetail)
}

// shorten returns text as valid UTF-8 of at most n bytes.
func shorten(text string, n int) string {
	if len(text) > n {
		text = text[:n-len("…")]
		return strings.ToValidUTF8(text, "") + "…"
	}
	return strings.ToValidUTF8(text, "")
}
