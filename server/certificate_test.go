package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// authority issues certificates.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	own := a.issue(t, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "authority"},
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	})
	a.key, _ = own.PrivateKey.(*ecdsa.PrivateKey)
	a.certificate = own.Leaf
	return a
}

// issue returns a certificate like the given one, signed by a or, if a has no key, by itself.
func (a *authority) issue(t *testing.T, like *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	like.SerialNumber = big.NewInt(time.Now().UnixNano())
	if like.NotBefore.IsZero() {
		like.NotBefore = time.Now().Add(-time.Hour)
	}
	if like.NotAfter.IsZero() {
		like.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := a.certificate, a.key
	if signer == nil {
		parent, signer = like, key
	}
	signed, err := x509.CreateCertificate(rand.Reader, like, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(signed)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key, Leaf: leaf}
}

// client returns a certificate for a client of these organizations.
func (a *authority) client(t *testing.T, organizations ...string) tls.Certificate {
	t.Helper()
	return a.issue(t, &x509.Certificate{
		Subject:     pkix.Name{Organization: organizations},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// files writes the certificate of a server and of a, and returns the settings that name them for the given section.
func (a *authority) files(t *testing.T, section string) map[string]string {
	t.Helper()
	server := a.issue(t, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	key, err := x509.MarshalPKCS8PrivateKey(server.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir, env := t.TempDir(), make(map[string]string)
	for name, block := range map[string]*pem.Block{
		"CERT":      {Type: "CERTIFICATE", Bytes: server.Certificate[0]},
		"KEY":       {Type: "PRIVATE KEY", Bytes: key},
		"CLIENT_CA": {Type: "CERTIFICATE", Bytes: a.certificate.Raw},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		env["SIBYL_"+section+"_TLS_"+name] = file
	}
	env["SIBYL_"+section+"_TLS_CLIENT_TENANT"] = "organization"
	return env
}

// The organization in a client's certificate is the tenant of its traces, over HTTP and gRPC. A token or a header for
// another tenant is refused, and so is a certificate that doesn't name a tenant.
func TestTenantOfCertificate(t *testing.T) {
	a := newAuthority(t)
	h := newHouse(t, a.files(t, "OTLP"))
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	request := oneSpan(t)
	for _, c := range []struct {
		organizations []string
		token, scope  string
		want          int
		to            int // index of the tenant
	}{
		{[]string{"a"}, "", "", http.StatusOK, 1},
		{[]string{"b"}, "", "", http.StatusOK, 2},
		{[]string{"default"}, "", "", http.StatusOK, 0},
		{[]string{"a"}, "a agent", "a", http.StatusOK, 1},
		{[]string{"a"}, "gateway", "", http.StatusOK, 1},
		{[]string{"a"}, "gateway", "b", http.StatusForbidden, 0},
		{[]string{"a"}, "b agent", "", http.StatusForbidden, 0},
		{[]string{"a"}, "agent", "", http.StatusForbidden, 0},
		{[]string{"a"}, "", "b", http.StatusForbidden, 0},
		{[]string{"a"}, "", "default", http.StatusForbidden, 0},
		{[]string{"default"}, "a agent", "", http.StatusForbidden, 0},
		{[]string{"c"}, "", "", http.StatusForbidden, 0},
		{[]string{"Acme, Inc."}, "", "", http.StatusForbidden, 0},
		{[]string{"a", "b"}, "", "", http.StatusForbidden, 0},
		{nil, "", "", http.StatusForbidden, 0},
		{nil, "a agent", "", http.StatusForbidden, 0},
	} {
		want := h.requests()
		if c.want == http.StatusOK {
			want[c.to] += 2
		}
		encrypted := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{a.client(t, c.organizations...)}}
		if code := h.sendEncrypted(encrypted, h.tokens[c.token], c.scope, request); code != c.want {
			t.Errorf("%q, %q, %q: %d, want %d", c.organizations, c.token, c.scope, code, c.want)
		}
		code := codes.OK
		if c.want != http.StatusOK {
			code = codes.PermissionDenied
		}
		if err := h.exportEncrypted(encrypted, h.tokens[c.token], c.scope, request); status.Code(err) != code {
			t.Errorf("gRPC, %q, %q, %q: %v, want %v", c.organizations, c.token, c.scope, err, code)
		}
		if got := h.requests(); !slices.Equal(got, want) {
			t.Errorf("%q, %q, %q: %v, want %v", c.organizations, c.token, c.scope, got, want)
		}
	}
}

// sendEncrypted sends traces over HTTP and returns the status.
func (h *house) sendEncrypted(c *tls.Config, token, scope string, body []byte) int {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost,
		"https://"+h.Addresses().HTTP.String()+"/v1/traces", bytes.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("X-Scope-OrgID", scope)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: c}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r)
	if err != nil {
		h.t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// exportEncrypted sends traces over gRPC.
func (h *house) exportEncrypted(c *tls.Config, token, scope string, body []byte) error {
	h.t.Helper()
	conn, err := grpc.NewClient(h.Addresses().GRPC.String(), grpc.WithTransportCredentials(credentials.NewTLS(c)))
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close()
	request := ptraceotlp.NewExportRequest()
	if err := request.UnmarshalProto(body); err != nil {
		h.t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(h.t.Context(), "x-scope-orgid", scope)
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	_, err = ptraceotlp.NewGRPCClient(conn).Export(ctx, request)
	return err
}

// The certificate of an agent decides about its tenant, if its token is for any tenant. A token of another tenant is
// refused, at the usual address and below the path of a tenant.
func TestTenantOfAgentsCertificate(t *testing.T) {
	a := newAuthority(t)
	h := newHouse(t, a.files(t, "API"))
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	for i, c := range []struct {
		organization, token, path string
		want                      int
	}{
		{"a", "gateway", "", http.StatusCreated},
		{"a", "gateway", "/t/a", http.StatusCreated},
		{"a", "a agent", "", http.StatusCreated},
		{"a", "gateway", "/t/b", http.StatusForbidden},
		{"a", "b agent", "", http.StatusForbidden},
		{"a", "b agent", "/t/b", http.StatusForbidden},
		{"a", "agent", "", http.StatusForbidden},
		{"c", "gateway", "", http.StatusForbidden},
		{"a", "", "", http.StatusUnauthorized},
	} {
		hello := `{"protocol":1,"session":"1","resource":{"service.name":"shop"},"capabilities":["span"],` +
			`"catalogue":{"hash":"` + protocol.HashCatalogue(nil) + `"}}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
			"https://"+h.Addresses().API.String()+c.path+protocol.Path+string(rune('a'+i))+"?session=1",
			strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if token := h.tokens[c.token]; token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		transport := &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: roots, Certificates: []tls.Certificate{a.client(t, c.organization)},
		}}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		transport.CloseIdleConnections()
		if refused := c.want >= 400; refused && answer.StatusCode != c.want || !refused && answer.StatusCode >= 300 {
			t.Errorf("%+v: %s", c, answer.Status)
		}
	}
	all := h.all()
	eventually(t, "tenant a has the agents", func() bool { return len(all[1].plane.Agents()) == 3 })
	if n := len(all[0].plane.Agents()) + len(all[2].plane.Agents()); n != 0 {
		t.Errorf("other tenants have %d agents", n)
	}
}
