package query

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// overHTTP queries Jaeger through /api/v3. A response is a JSON document {"result": …} or, if streamed, several
// documents.
type overHTTP struct {
	base   *url.URL
	client *http.Client
	limit  int64 // maximum size of a response in bytes
}

func newHTTP(base *url.URL, limit int64) *overHTTP {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute}
	return &overHTTP{base, &http.Client{Transport: transport}, limit}
}

func (h *overHTTP) close() error {
	h.client.CloseIdleConnections()
	return nil
}

// services implements source.
func (h *overHTTP) services(ctx context.Context) ([]string, error) {
	body, err := h.get(ctx, "services", nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Services []string
		Result   struct{ Services []string }
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode services from Jaeger: %w", err)
	}
	return append(list.Services, list.Result.Services...), nil
}

// find implements source.
func (h *overHTTP) find(ctx context.Context, service string, w window, n int) (ptrace.Traces, error) {
	body, err := h.get(ctx, "traces", url.Values{
		"query.service_name":   {service},
		"query.start_time_min": {w.from.UTC().Format(time.RFC3339Nano)},
		"query.start_time_max": {w.to.UTC().Format(time.RFC3339Nano)},
		"query.num_traces":     {strconv.Itoa(n)},
		"query.search_depth":   {strconv.Itoa(n)}, // the name of num_traces in some versions
		"query.raw_traces":     {"true"},          // without Jaeger's adjustments
	})
	all := ptrace.NewTraces()
	if err != nil {
		return all, err
	}
	for d := json.NewDecoder(bytes.NewReader(body)); ; {
		var part struct {
			Result json.RawMessage
			Error  *apiError
		}
		switch err := d.Decode(&part); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, fmt.Errorf("decode traces from Jaeger: %w: %w", errUnreadable, err)
		case part.Error != nil:
			return all, part.Error
		case part.Result == nil:
			continue
		}
		traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(part.Result)
		if err != nil {
			return all, fmt.Errorf("decode traces from Jaeger (protocol grpc may work): %w: %w", errUnreadable, err)
		}
		traces.ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
	}
}

// apiError is an error response from Jaeger. Older versions use a different name for the code.
type apiError struct {
	HTTPCode int    `json:"httpCode"`
	Message  string `json:"message"`
}

func (e *apiError) Error() string { return "Jaeger answers: " + e.Message }

// get returns the body of the response to a query for resource, or nil if Jaeger found nothing. It returns errLarge if
// the body exceeds the limit.
func (h *overHTTP) get(ctx context.Context, resource string, query url.Values) ([]byte, error) {
	u := h.base.JoinPath("api/v3", resource)
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask Jaeger for %s: %w", resource, err)
	}
	response, err := h.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask Jaeger for %s: %w", resource, withoutQuery(err))
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, h.limit+1))
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("read %s from Jaeger: %w", resource, err)
	}
	if response.StatusCode != http.StatusOK {
		var failed struct{ Error *apiError }
		_ = json.Unmarshal(body, &failed) // ignores a body that isn't JSON
		switch {
		case response.StatusCode == http.StatusNotFound && failed.Error != nil:
			return nil, nil // no traces
		case response.StatusCode == http.StatusNotFound:
			return nil, fmt.Errorf("no %s: is this the URL of a query service? Versions without it need protocol grpc",
				u.Path)
		case failed.Error != nil:
			return nil, fmt.Errorf("%w (%s)", failed.Error, response.Status)
		}
		return nil, fmt.Errorf("ask Jaeger for %s: it answers %s", resource, response.Status)
	}
	if int64(len(body)) > h.limit {
		return nil, errLarge
	}
	return body, nil
}

// withoutQuery removes the URL from err, because the URL has a long query and may contain a password.
func withoutQuery(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
