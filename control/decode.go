package control

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/go-faster/jx"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// All agents send statuses at the same time when the plan changes, and registrations when the service restarts. We
// therefore decode both in one pass and mostly without reflection.

var errTrailing = errors.New("data follows the object")

// object calls field for each key of the JSON object in body whose value isn't null. It returns a refusal if body isn't
// exactly one object or field returns an error.
func object(body []byte, field func(d *jx.Decoder, key string) error) error {
	d := jx.DecodeBytes(body)
	if err := d.ObjBytes(present(field)); err != nil {
		return BadJSON(err)
	}
	if !errors.Is(d.Skip(), io.EOF) {
		return BadJSON(errTrailing)
	}
	return nil
}

// present returns a callback for jx that skips null values and calls field for the others.
func present(field func(d *jx.Decoder, key string) error) func(*jx.Decoder, []byte) error {
	return func(d *jx.Decoder, key []byte) error {
		if d.Next() == jx.Null {
			return d.Skip()
		}
		return field(d, string(key))
	}
}

// decodeRegistration decodes a registration. It skips the page if the catalogue is already complete, so that a
// catalogue shared by many agents is decoded only once.
func (p *Plane) decodeRegistration(body []byte) (*protocol.Registration, error) {
	var r protocol.Registration
	var page []byte
	err := object(body, func(d *jx.Decoder, key string) error {
		raw, err := d.Raw()
		if err != nil {
			return err
		}
		switch key {
		case "protocol":
			err = json.Unmarshal(raw, &r.Protocol)
		case "session":
			err = json.Unmarshal(raw, &r.Session)
		case "resource":
			err = json.Unmarshal(raw, &r.Resource)
		case "capabilities":
			err = json.Unmarshal(raw, &r.Capabilities)
		case "catalogue":
			err = json.Unmarshal(raw, &r.Catalogue)
		case "page":
			page = raw
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if page != nil && !p.HasCatalogue(r.Catalogue) {
		if err := json.Unmarshal(page, &r.Page); err != nil {
			return nil, BadJSON(err)
		}
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return &r, nil
}

// decodeStatus decodes a status, or returns a refusal.
func decodeStatus(body []byte) (*protocol.Status, error) {
	var s protocol.Status
	err := object(body, func(d *jx.Decoder, key string) (err error) {
		switch key {
		case "protocol":
			s.Protocol, err = d.Int()
		case "session":
			s.Session, err = d.Str()
		case "version":
			s.Version, err = d.Int64()
		case "hash":
			s.Hash, err = d.Str()
		case "error":
			s.Error, err = d.Str()
		case "tracepoints":
			err = d.Arr(func(d *jx.Decoder) error {
				o, err := decodeOutcome(d)
				s.Tracepoints = append(s.Tracepoints, o)
				return err
			})
		case "stacks":
			var raw jx.Raw
			if raw, err = d.Raw(); err == nil {
				err = json.Unmarshal(raw, &s.Stacks)
			}
		default:
			err = d.Skip()
		}
		return err
	})
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		return nil, err
	}
	return &s, nil
}

func decodeOutcome(d *jx.Decoder) (o protocol.Outcome, err error) {
	err = d.ObjBytes(present(func(d *jx.Decoder, key string) (err error) {
		switch key {
		case "id":
			o.ID, err = d.Str()
		case "state":
			var state string
			state, err = d.Str()
			o.State = protocol.State(state)
		case "reason":
			o.Reason, err = d.Str()
		case "hits":
			o.Hits, err = d.UInt64()
		case "drops":
			o.Drops, err = d.UInt64()
		case "cost_ns":
			o.Nanos, err = d.Float64()
		case "bytes":
			o.Bytes, err = d.Float64()
		case "incomplete":
			o.Incomplete, err = d.Bool()
		default:
			err = d.Skip()
		}
		return err
	}))
	return o, err
}
