package server

import (
	"errors"
	"net/http"

	"github.com/sibyl-trace/sibyl/config"
)

// headed sends requests with the headers of an endpoint. It reads the files with their values for each request, which are few, so that a key that was
// replaced counts without a restart. It is safe for concurrent use.
type headed struct{ endpoint *config.Endpoint }

// newHeaded returns an error if a header cannot be sent.
func newHeaded(to *config.Endpoint) (http.RoundTripper, error) {
	_, err := to.Fields()
	return headed{to}, err
}

// RoundTrip implements [http.RoundTripper].
func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	fields, err := h.endpoint.Fields()
	if err != nil {
		if r.Body != nil {
			err = errors.Join(err, r.Body.Close())
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	for name, value := range fields {
		r.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(r)
}
