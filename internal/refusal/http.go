package refusal

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"strconv"
)

// ProblemType is the media type of refusals over HTTP.
const ProblemType = "application/problem+json"

// Problem is the body of a refusal over HTTP (RFC 9457).
type Problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Hint     string `json:"hint,omitempty"`
	Instance string `json:"instance,omitempty"` // identifies this answer in the log
}

// Code returns the HTTP status of e.
func (e *Error) Code() int {
	if e.Status != 0 {
		return e.Status
	}
	return reasons[e.Reason].http
}

// Problem returns e as a body, without an instance.
func (e *Error) Problem() Problem {
	code := e.Code()
	return Problem{Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: e.Detail, Hint: e.Hint}
}

// SetHeader adds the header fields of e to h.
func (e *Error) SetHeader(h http.Header) {
	maps.Copy(h, e.Header)
	if e.After > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.After.Seconds()))))
	}
}

// Write answers with e. body is e.Problem(), or a struct that extends it.
func (e *Error) Write(w http.ResponseWriter, body any) {
	h := w.Header()
	e.SetHeader(h)
	h.Set("Content-Type", ProblemType)
	h.Set("Cache-Control", "no-store")
	h.Del("ETag")
	w.WriteHeader(e.Code())
	_ = json.NewEncoder(w).Encode(body) // fails only if the client has disconnected
}
