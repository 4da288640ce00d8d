package server

import (
	"errors"
	"net/http"

	"github.com/sibyl-trace/sibyl/config"
)

// headerTransport sends requests with the headers of an endpoint. It reads the files with header values for each
// request, so that a rotated key takes effect without a restart. This is cheap enough, because there are few requests.
// It is safe for concurrent use.
type headerTransport struct{ endpoint *config.Endpoint }

// newHeaderTransport returns a headerTransport for `to`, or an error if a header can't be sent.
func newHeaderTransport(to *config.Endpoint) (http.RoundTripper, error) {
	_, err := to.Fields()
	return headerTransport{to}, err
}

// RoundTrip implements [http.RoundTripper].
func (h headerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
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
