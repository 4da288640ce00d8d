package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/telemetry"
	"github.com/sibyl-trace/sibyl/config"
)

// telemetryOptions returns the systems that c configures for queries about suspects.
func telemetryOptions(c *config.Config, log *slog.Logger) (o telemetry.Options, err error) {
	o = telemetry.Options{
		LogQuery:  c.Logs.Query,
		Metrics:   c.Metrics.Queries,
		Namespace: c.Kubernetes.Namespace,
		Log:       log,
	}
	if len(o.Metrics) == 0 {
		o.Metrics = telemetry.DefaultMetrics()
	}
	o.Loki.URL, o.Prometheus.URL, o.Kubernetes.URL = c.Logs.Loki.URL, c.Metrics.Prometheus.URL, c.Kubernetes.URL
	if o.Loki.Transport, err = newHeaderTransport(&c.Logs.Loki); err != nil {
		return o, fmt.Errorf("logs: %w", err)
	}
	if o.Prometheus.Transport, err = newHeaderTransport(&c.Metrics.Prometheus); err != nil {
		return o, fmt.Errorf("metrics: %w", err)
	}
	if o.Kubernetes.Transport, err = kubernetesTransport(&c.Kubernetes); err != nil {
		return o, fmt.Errorf("kubernetes: %w", err)
	}
	return o, nil
}

// kubernetesTransport returns a transport for the API of Kubernetes. It sends no token if the URL isn't encrypted, as
// with kubectl proxy.
func kubernetesTransport(c *config.Kubernetes) (http.RoundTripper, error) {
	if !strings.HasPrefix(c.URL, "https://") {
		return http.DefaultTransport, nil
	}
	roots, err := authorities(c.CAFile, "kubernetes.ca-file")
	if err != nil {
		return nil, err
	}
	trusting := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 5 * time.Second,
		IdleConnTimeout:     time.Minute,
		ForceAttemptHTTP2:   true,
	}
	return tokenTransport{c.TokenFile, trusting}, nil
}

// authorities returns the certificate authorities in file, which the configuration names by key.
func authorities(file, key string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w; correct %s", err, key)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate; correct %s", file, key)
	}
	return roots, nil
}

// tokenTransport sends requests with a bearer token from a file. It reads the file for each request, because the
// cluster renews the token.
type tokenTransport struct {
	file string
	base http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := os.ReadFile(t.file)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return t.base.RoundTrip(r)
}
