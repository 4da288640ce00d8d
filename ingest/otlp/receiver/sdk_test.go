package receiver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/credentials"

	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// client is the configuration of an exporter of the SDK.
type client struct {
	gzip  bool
	token string
	tls   *tls.Config // nil for clear text
}

// quick is the interval between retries of exporters. Delays requested by servers take precedence.
const quick = 10 * time.Millisecond

// exporters holds functions that create the exporters of the OpenTelemetry SDK, by transport.
var exporters = map[string]func(t testing.TB, s *Server, c client) sdk.SpanExporter{
	"gRPC": func(t testing.TB, s *Server, c client) sdk.SpanExporter {
		opts := []otlptracegrpc.Option{
			otlptracegrpc.WithEndpoint(s.GRPCAddr().String()),
			otlptracegrpc.WithHeaders(map[string]string{"Authorization": "Bearer " + c.token}),
			otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
				Enabled: true, InitialInterval: quick, MaxInterval: quick, MaxElapsedTime: patience,
			}),
		}
		if c.gzip {
			opts = append(opts, otlptracegrpc.WithCompressor("gzip"))
		}
		if c.tls != nil {
			opts = append(opts, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(c.tls)))
		} else {
			opts = append(opts, otlptracegrpc.WithInsecure())
		}
		e, err := otlptracegrpc.New(t.Context(), opts...)
		must(t, err)
		return e
	},
	"HTTP": func(t testing.TB, s *Server, c client) sdk.SpanExporter {
		opts := []otlptracehttp.Option{
			otlptracehttp.WithEndpoint(s.HTTPAddr().String()),
			otlptracehttp.WithHeaders(map[string]string{"Authorization": "Bearer " + c.token}),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
				Enabled: true, InitialInterval: quick, MaxInterval: quick, MaxElapsedTime: patience,
			}),
		}
		if c.gzip {
			opts = append(opts, otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
		}
		if c.tls != nil {
			opts = append(opts, otlptracehttp.WithTLSClientConfig(c.tls))
		} else {
			opts = append(opts, otlptracehttp.WithInsecure())
		}
		e, err := otlptracehttp.New(t.Context(), opts...)
		must(t, err)
		return e
	},
}

// export sends the given number of spans through the SDK's batch processor, and returns the error of the last export.
func export(t testing.TB, e sdk.SpanExporter, spans int) error {
	t.Helper()
	last := &lastError{SpanExporter: e}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(last))
	tracer := provider.Tracer("test")
	for i := range spans {
		_, span := tracer.Start(t.Context(), "GET /item")
		span.SetAttributes(attribute.Int("i", i))
		span.End()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, provider.ForceFlush(ctx))
	must(t, provider.Shutdown(ctx))
	return last.err
}

// lastError records the error of the last export, which the SDK would only log.
type lastError struct {
	sdk.SpanExporter
	err error
}

func (l *lastError) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	l.err = l.SpanExporter.ExportSpans(ctx, spans)
	return nil
}

// The server accepts requests of the SDK, plain and with gzip.
func TestSDK(t *testing.T) {
	for name, exporter := range exporters {
		for _, gzip := range []bool{false, true} {
			taken := newDecoding(t)
			s := start(t, taken, Options{})
			if err := export(t, exporter(t, s, client{gzip: gzip}), 600); err != nil || taken.taken() != 600 {
				t.Errorf("%s, gzip %t: %v, %d spans taken, want 600", name, gzip, err, taken.taken())
			}
		}
	}
}

// The SDK retries after an overload, and every span is taken once.
func TestSDKTriesAgain(t *testing.T) {
	for name, exporter := range exporters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			taken := newDecoding(t)
			var refused atomic.Int64
			s := start(t, intake(func(ctx context.Context, body []byte, format Format) (Rejected, error) {
				if refused.Add(1) <= 2 {
					return Rejected{}, refusal.New(refusal.Overloaded, "not now", "").Later(quick)
				}
				return taken.Take(ctx, body, format)
			}), Options{})
			if err := export(t, exporter(t, s, client{}), 5); err != nil || taken.taken() != 5 || refused.Load() != 3 {
				t.Errorf("%v, %d spans taken after %d tries, want 5 after 3", err, taken.taken(), refused.Load())
			}
		})
	}
}

// The SDK doesn't retry requests that are too large or lack a valid token.
func TestSDKGivesUp(t *testing.T) {
	for name, exporter := range exporters {
		var events atomic.Int64
		s := start(t, newDecoding(t), Options{
			MaxRequestBytes: 100,
			Route:           needsSecret,
			Observe:         func(Event) { events.Add(1) },
		})
		if err := export(t, exporter(t, s, client{token: "guessed"}), 1); err == nil || events.Load() != 1 {
			t.Errorf("%s: wrong token: %v after %d tries", name, err, events.Load())
		}
		if err := export(t, exporter(t, s, client{token: "secret"}), 100); err == nil || events.Load() != 2 {
			t.Errorf("%s: too large: %v after %d tries", name, err, events.Load()-1)
		}
	}
}

// Only clients with valid certificates are served, both with TLS and mTLS.
func TestSDKEncrypted(t *testing.T) {
	files, roots, own := certificates(t)
	withClients := files
	withClients.ClientCAFile = files.CertFile
	for name, exporter := range exporters {
		for _, test := range []struct {
			name   string
			server connlimit.TLS
			client *tls.Config
			in     bool
		}{
			{"TLS", files, &tls.Config{RootCAs: roots}, true},
			{"unknown server", files, &tls.Config{}, false},
			{"mTLS", withClients, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}, true},
			{"no certificate", withClients, &tls.Config{RootCAs: roots}, false},
			{"clear text", files, nil, false},
		} {
			t.Run(name+" "+test.name, func(t *testing.T) {
				t.Parallel()
				taken := newDecoding(t)
				s := start(t, taken, Options{TLS: test.server})
				e := exporter(t, s, client{tls: test.client})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if !test.in {
					ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond) // it retries forever
				}
				defer cancel()
				err := e.ExportSpans(ctx, []sdk.ReadOnlySpan{spanOf(t)})
				if (err == nil) != test.in || (taken.taken() == 1) != test.in {
					t.Errorf("%v, %d spans taken", err, taken.taken())
				}
				e.Shutdown(context.Background())
			})
		}
	}
}

// spanOf returns an ended span.
func spanOf(t testing.TB) sdk.ReadOnlySpan {
	_, span := sdk.NewTracerProvider().Tracer("test").Start(t.Context(), "GET /item")
	span.End()
	return span.(sdk.ReadOnlySpan)
}

// New returns an error if the TLS files can't be used.
func TestUnusableTLS(t *testing.T) {
	files, _, _ := certificates(t)
	for name, unusable := range map[string]connlimit.TLS{
		"no key":             {CertFile: files.CertFile},
		"missing":            {CertFile: files.CertFile + "x", KeyFile: files.KeyFile},
		"no clients' file":   {CertFile: files.CertFile, KeyFile: files.KeyFile, ClientCAFile: files.CertFile + "x"},
		"no certificates":    {CertFile: files.CertFile, KeyFile: files.KeyFile, ClientCAFile: files.KeyFile},
		"only who may enter": {ClientCAFile: files.CertFile},
	} {
		if _, err := New(drop{}, Options{GRPC: "127.0.0.1:0", TLS: unusable}); err == nil {
			t.Errorf("%s: New returned no error", name)
		}
	}
}

// certificates returns a self-signed certificate for server and client.
func certificates(t testing.TB) (files connlimit.TLS, roots *x509.CertPool, own tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	folder := t.TempDir()
	files = connlimit.TLS{CertFile: filepath.Join(folder, "cert.pem"), KeyFile: filepath.Join(folder, "key.pem")}
	must(t, os.WriteFile(files.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o600))
	must(t, os.WriteFile(files.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	own, err = tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	must(t, err)
	roots = x509.NewCertPool()
	roots.AddCert(own.Leaf)
	return files, roots, own
}
