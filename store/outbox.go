package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/codec/plain"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// keyOutbox is the first byte of the outbox's keys. The second byte is one of the following.
const keyOutbox = 'o'

const (
	outboxWaiting = 'w' // messages waiting to be delivered, by number
	outboxDead    = 'd' // dead letters, by number
	outboxKnown   = 'k' // times when events were first put, by event ID
)

const (
	rememberEvents = 24 * time.Hour // retention of event IDs; longer than the time that a restart replays
	forgetEvery    = time.Hour      // interval between deletions of old event IDs
)

// OutboxLimits limits the contents of an [Outbox], including dead letters.
type OutboxLimits struct {
	Messages int
	Bytes    int64 // total size of the bodies
}

// DefaultOutboxLimits returns limits that suffice for many days of incidents.
func DefaultOutboxLimits() OutboxLimits { return OutboxLimits{Messages: 10_000, Bytes: 64 << 20} }

// Message is one event for one endpoint.
type Message struct {
	Number   uint64         `json:"number"`   // unique; defines the order
	ID       string         `json:"id"`       // ID of the event: the same for all endpoints and attempts
	Endpoint string         `json:"endpoint"` // name of the endpoint
	Event    string         `json:"event"`    // type of the event
	Format   string         `json:"format"`   // format of Body
	Subject  search.Subject `json:"subject"`  // messages about the same subject are delivered in order; may be zero
	At       trace.Nanos    `json:"at"`       // time of the event
	Put      trace.Nanos    `json:"put"`      // when it was last put into the outbox
	Next     trace.Nanos    `json:"next"`     // earliest time of the next attempt
	Attempts int            `json:"attempts"` // number of failed attempts
	Error    string         `json:"error"`    // error of the last attempt
	Size     int64          `json:"size"`     // size of Body in bytes
	Body     []byte         `json:"-"`        // nil in lists
}

// ErrNoMessage is returned for an unknown message number.
var ErrNoMessage = errors.New("there is no such message")

// Outbox holds messages until they have been delivered. A message that could not be delivered becomes a dead letter,
// which stays until it is resent or dropped. Changes are durable when a method returns. If the outbox is full, it drops
// the oldest dead letters first, then the oldest messages. It is safe for concurrent use.
type Outbox struct {
	db     database
	limits OutboxLimits

	mu      sync.Mutex                // guards the fields below
	waiting map[string][]*outboxEntry // by endpoint; ascending by number
	dead    []*outboxEntry            // ascending by number
	next    uint64                    // number of the next message
	count   int
	bytes   int64
	dropped uint64
	forgot  trace.Nanos // when old event IDs were last deleted
}

// outboxEntry is a message in memory. Its body is only in the database.
type outboxEntry struct {
	Message

	taken bool // a caller of Take is delivering it
}

// OutboxStats describes the contents of an outbox.
type OutboxStats struct {
	Waiting, Dead int
	Bytes         int64  // total size of the bodies
	Dropped       uint64 // number of messages dropped to make room, since the start
}

// OpenOutbox returns the outbox of the store. It must be called only once.
func (s *Store) OpenOutbox(limits OutboxLimits) (*Outbox, error) {
	o := &Outbox{db: s.db, limits: limits, waiting: make(map[string][]*outboxEntry), next: 1}
	for _, kind := range []byte{outboxWaiting, outboxDead} {
		if err := o.load(kind); err != nil {
			return nil, fmt.Errorf("open outbox: %w", err)
		}
	}
	return o, nil
}

// load reads the messages of the given kind, outboxWaiting or outboxDead, into memory.
func (o *Outbox) load(kind byte) error {
	return o.db.each([]byte{keyOutbox, kind}, func(_, value []byte) error {
		m, err := decodeMessage(value)
		if err != nil {
			return err
		}
		m.Body = nil
		l := &outboxEntry{Message: m}
		if kind == outboxDead {
			o.dead = append(o.dead, l)
		} else {
			o.waiting[m.Endpoint] = append(o.waiting[m.Endpoint], l)
		}
		o.count++
		o.bytes += m.Size
		o.next = max(o.next, m.Number+1)
		return nil
	})
}

func messageKey(kind byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{keyOutbox, kind}, number)
}

// knownKey returns the key of the time when the event with the given id was put.
func knownKey(id string) []byte { return append([]byte{keyOutbox, outboxKnown}, id...) }

// messageVersion is the first byte of an encoded message.
const messageVersion = 1

func encodeMessage(m *Message) []byte {
	b := codec.AppendSection([]byte{messageVersion}, func(b []byte) []byte { return plain.Append(b, m) })
	return append(b, m.Body...)
}

// decodeMessage decodes value, the result of encodeMessage. The body of m shares memory with value. Errors wrap
// [codec.ErrCorrupt].
func decodeMessage(value []byte) (m Message, err error) {
	r := codec.NewReader(value)
	r.Version(messageVersion)
	if err = plain.Decode(r.Section(), &m); err != nil || r.Bad() {
		return Message{}, fmt.Errorf("%w: message of the outbox: %w", codec.ErrCorrupt, cmp.Or(err, r.Err()))
	}
	m.Body = r.Rest()
	return m, nil
}

// Put assigns numbers to messages and adds them. All messages must have the same event ID. Put returns false if it
// added nothing, because the event had been put before or because messages is empty.
func (o *Outbox) Put(now trace.Nanos, messages []Message) (bool, error) {
	if len(messages) == 0 {
		return false, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	known := knownKey(messages[0].ID)
	if value, err := o.db.get(known); value != nil || err != nil {
		return false, err
	}
	added := make([]*outboxEntry, 0, len(messages))
	err := o.db.commit(pebble.Sync, func(b *pebble.Batch) error {
		for i := range messages {
			l := &outboxEntry{Message: messages[i]}
			l.Number, l.Put, l.Next, l.Size = o.next+uint64(i), now, now, int64(len(l.Body))
			if err := b.Set(messageKey(outboxWaiting, l.Number), encodeMessage(&l.Message), nil); err != nil {
				return err
			}
			l.Body = nil
			added = append(added, l)
		}
		return b.Set(known, binary.BigEndian.AppendUint64(nil, uint64(now)), nil)
	})
	if err != nil {
		return false, fmt.Errorf("put event %s into the outbox: %w", messages[0].ID, err)
	}
	for _, l := range added {
		o.waiting[l.Endpoint] = append(o.waiting[l.Endpoint], l)
		o.count++
		o.bytes += l.Size
	}
	o.next += uint64(len(added))
	return true, o.shrink()
}

// shrink drops the oldest dead letters, then the oldest messages, until the outbox is within its limits.
func (o *Outbox) shrink() error {
	for o.count > o.limits.Messages || o.bytes > o.limits.Bytes {
		l, kind := o.oldest()
		if l == nil {
			return nil
		}
		if err := o.db.Delete(messageKey(kind, l.Number), pebble.Sync); err != nil {
			return err
		}
		o.remove(l)
		o.dropped++
	}
	return nil
}

// oldest returns the next entry to drop and its kind. The entry is nil if the outbox is empty.
func (o *Outbox) oldest() (*outboxEntry, byte) {
	if len(o.dead) > 0 {
		return o.dead[0], outboxDead
	}
	var first *outboxEntry
	for _, list := range o.waiting {
		if len(list) > 0 && (first == nil || list[0].Number < first.Number) {
			first = list[0]
		}
	}
	return first, outboxWaiting
}

// remove removes l from the lists in memory.
func (o *Outbox) remove(l *outboxEntry) {
	is := func(x *outboxEntry) bool { return x == l }
	o.dead = slices.DeleteFunc(o.dead, is)
	o.waiting[l.Endpoint] = slices.DeleteFunc(o.waiting[l.Endpoint], is)
	if len(o.waiting[l.Endpoint]) == 0 {
		delete(o.waiting, l.Endpoint)
	}
	o.count--
	o.bytes -= l.Size
}

// Take returns up to n due messages for endpoint, oldest first. Only the oldest message about each subject can be due.
// again is the time at which to call Take again, or 0 if the caller should wait until a message is put. The caller owns
// each message until it calls [Outbox.Done], [Outbox.Retry], [Outbox.Release] or [Outbox.MoveToDeadLetters].
func (o *Outbox) Take(endpoint string, now trace.Nanos, n int) (due []Message, again trace.Nanos, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	behind := make(map[search.Subject]bool) // subjects with an older message
	for _, l := range o.waiting[endpoint] {
		if behind[l.Subject] {
			continue
		}
		behind[l.Subject] = !l.Subject.IsZero()
		switch {
		case l.taken:
		case l.Next > now:
			if again == 0 || l.Next < again {
				again = l.Next
			}
		case len(due) < n:
			m, err := o.read(outboxWaiting, l.Number)
			if err != nil {
				return due, again, err
			}
			l.taken = true
			due = append(due, m)
		}
	}
	return due, again, nil
}

func (o *Outbox) read(kind byte, number uint64) (Message, error) {
	value, err := o.db.get(messageKey(kind, number))
	if err != nil {
		return Message{}, err
	}
	if value == nil {
		return Message{}, ErrNoMessage
	}
	return decodeMessage(value)
}

// find returns the entry of m if m is still waiting, or nil.
func (o *Outbox) find(m *Message) *outboxEntry {
	list := o.waiting[m.Endpoint]
	at, found := slices.BinarySearchFunc(list, m.Number, byNumber)
	if !found {
		return nil
	}
	return list[at]
}

func byNumber(l *outboxEntry, number uint64) int { return cmp.Compare(l.Number, number) }

// Done removes m after its delivery. If the removal can't be written, Done returns an error, and m stays taken until
// the next start. It then becomes due again.
func (o *Outbox) Done(m *Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.find(m)
	if l == nil {
		return nil // dropped in the meantime
	}
	if err := o.db.Delete(messageKey(outboxWaiting, m.Number), pebble.Sync); err != nil {
		return err
	}
	o.remove(l)
	return nil
}

// Delivered removes the waiting message about event for endpoint, if there is one and nobody is delivering it. Another
// replica has delivered it.
func (o *Outbox) Delivered(event, endpoint string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.waiting[endpoint]
	i := slices.IndexFunc(list, func(l *outboxEntry) bool { return l.ID == event && !l.taken })
	if i < 0 {
		return nil
	}
	if err := o.db.Delete(messageKey(outboxWaiting, list[i].Number), pebble.NoSync); err != nil {
		return err
	}
	o.remove(list[i])
	return nil
}

// Release returns m to the outbox without counting an attempt.
func (o *Outbox) Release(m *Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.find(m); l != nil {
		l.taken = false
	}
}

// Retry records that an attempt to deliver m failed for the reason `why`, and postpones the next attempt until at.
func (o *Outbox) Retry(m *Message, at trace.Nanos, why string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.find(m)
	if l == nil {
		return nil
	}
	l.taken = false
	l.Attempts, l.Next, l.Error = l.Attempts+1, at, why
	changed := l.Message
	changed.Body = m.Body
	return o.db.Set(messageKey(outboxWaiting, m.Number), encodeMessage(&changed), pebble.Sync)
}

// MoveToDeadLetters records that the last attempt to deliver m failed for the reason `why`, and makes m a dead letter.
func (o *Outbox) MoveToDeadLetters(m *Message, why string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.find(m)
	if l == nil {
		return nil
	}
	l.Attempts, l.Error = l.Attempts+1, why
	return o.moveToDeadLetters(l)
}

// moveToDeadLetters makes l a dead letter. If the change can't be written, l stays taken.
func (o *Outbox) moveToDeadLetters(l *outboxEntry) error {
	if err := o.move(l, outboxWaiting, outboxDead, l.Number); err != nil {
		return err
	}
	l.taken = false
	at, _ := slices.BinarySearchFunc(o.dead, l.Number, byNumber)
	o.remove(l)
	o.dead = slices.Insert(o.dead, at, l)
	o.count++
	o.bytes += l.Size
	return nil
}

// move stores l as kind `to` with the given number and deletes it as kind `from`, in one commit. It keeps the body.
func (o *Outbox) move(l *outboxEntry, from, to byte, number uint64) error {
	m, err := o.read(from, l.Number)
	if err != nil {
		return err
	}
	changed := l.Message
	changed.Number, changed.Body = number, m.Body
	return o.db.commit(pebble.Sync, func(b *pebble.Batch) error {
		return errors.Join(
			b.Delete(messageKey(from, l.Number), nil),
			b.Set(messageKey(to, number), encodeMessage(&changed), nil),
		)
	})
}

// Resend moves the dead letter with the given number to the end of the waiting messages, with a new number. If the
// message is still waiting, Resend makes it due at once. It returns the message's endpoint, or [ErrNoMessage] if there
// is no such message.
func (o *Outbox) Resend(number uint64, now trace.Nanos) (endpoint string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at, found := slices.BinarySearchFunc(o.dead, number, byNumber); found {
		l := o.dead[at]
		l.Attempts, l.Put, l.Next = 0, now, now
		if err := o.move(l, outboxDead, outboxWaiting, o.next); err != nil {
			return "", err
		}
		o.dead = slices.Delete(o.dead, at, at+1)
		l.Number = o.next
		o.next++
		o.waiting[l.Endpoint] = append(o.waiting[l.Endpoint], l)
		return l.Endpoint, nil
	}
	for endpoint, list := range o.waiting {
		if at, found := slices.BinarySearchFunc(list, number, byNumber); found {
			list[at].Next = min(list[at].Next, now)
			return endpoint, nil
		}
	}
	return "", ErrNoMessage
}

// Dead returns the dead letter with the given number and its body. The error is [ErrNoMessage] if the number is
// unknown.
func (o *Outbox) Dead(number uint64) (Message, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.read(outboxDead, number)
}

// Drop deletes the dead letter with the given number. The error is [ErrNoMessage] if the number is unknown.
func (o *Outbox) Drop(number uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, found := slices.BinarySearchFunc(o.dead, number, byNumber)
	if !found {
		return ErrNoMessage
	}
	if err := o.db.Delete(messageKey(outboxDead, number), pebble.Sync); err != nil {
		return err
	}
	o.remove(o.dead[at])
	return nil
}

// Expire turns waiting messages into dead letters if they were put before the given time or if their endpoint isn't
// known. It leaves messages that are taken, and returns the number of messages moved. It also deletes old event IDs.
func (o *Outbox) Expire(now, before trace.Nanos, known func(endpoint string) bool) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	died := 0
	for _, endpoint := range slices.Sorted(maps.Keys(o.waiting)) {
		for _, l := range slices.Clone(o.waiting[endpoint]) {
			exists := known(endpoint)
			if l.taken || exists && l.Put >= before {
				continue
			}
			if !exists {
				l.Error = "no webhook with this name is configured any longer"
			}
			if err := o.moveToDeadLetters(l); err != nil {
				return died, err
			}
			died++
		}
	}
	if now.Sub(o.forgot) < forgetEvery {
		return died, nil
	}
	o.forgot = now
	return died, o.forget(now.Add(-rememberEvents))
}

// forget deletes the IDs of events that were put before the given time.
func (o *Outbox) forget(before trace.Nanos) error {
	return o.db.commit(pebble.NoSync, func(b *pebble.Batch) error { // if the commit is lost, the next call deletes them
		return o.db.each([]byte{keyOutbox, outboxKnown}, func(key, value []byte) error {
			if len(value) == 8 && trace.Nanos(binary.BigEndian.Uint64(value)) >= before {
				return nil
			}
			return b.Delete(key, nil)
		})
	})
}

// List returns the first n waiting messages, or dead letters if dead is true, with numbers greater than `after`, in
// ascending order and without bodies.
func (o *Outbox) List(dead bool, after uint64, n int) []Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []*outboxEntry
	if dead {
		all = slices.Clone(o.dead)
	} else {
		for _, list := range o.waiting {
			all = append(all, list...)
		}
		sorting.Slice(all, func(a, b *outboxEntry) int { return byNumber(a, b.Number) })
	}
	var list []Message
	for _, l := range all {
		if l.Number > after && len(list) < n {
			list = append(list, l.Message)
		}
	}
	return list
}

// Count returns the number of waiting messages and dead letters for endpoint.
func (o *Outbox) Count(endpoint string) (waiting, dead int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.dead {
		if l.Endpoint == endpoint {
			dead++
		}
	}
	return len(o.waiting[endpoint]), dead
}

// Stats returns the current statistics of o.
func (o *Outbox) Stats() OutboxStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return OutboxStats{Waiting: o.count - len(o.dead), Dead: len(o.dead), Bytes: o.bytes, Dropped: o.dropped}
}
