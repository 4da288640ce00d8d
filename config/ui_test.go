package config

import "testing"

// The address of the UI is the configured one or, if others can reach it, the listener's.
func TestUI(t *testing.T) {
	for want, c := range map[string]Config{
		"http://127.0.0.1:8321":       {HTTP: "127.0.0.1:8321"},
		"http://[::1]:8321/sibyl":     {HTTP: "[::1]:8321", API: API{BasePath: "/sibyl"}},
		"https://sibyl.internal:8321": {HTTP: "sibyl.internal:8321", API: API{TLS: TLS{Cert: "cert"}}},
		"https://sibyl.example/traces": {
			HTTP: "0.0.0.0:8321",
			API:  API{BasePath: "/ui", PublicURL: "https://sibyl.example/traces/"},
		},
	} {
		if got := c.UI(); got != want {
			t.Errorf("%+v: got %s, want %s", c, got, want)
		}
	}
	for _, address := range []string{"0.0.0.0:8321", "[::]:8321", ":8321", "127.0.0.1:0", ""} {
		if got := (&Config{HTTP: address}).UI(); got != "" {
			t.Errorf("%s: got %s", address, got)
		}
	}
	for text, want := range map[string]bool{
		"": true, "https://a.example/b": true, "http://a:1": true, "ftp://a": false,
		"https://u:p@a": false, "https://a?b": false, "https://a#b": false, "a": false,
	} {
		if got := isPublicURL(text); got != want {
			t.Errorf("isPublicURL(%q) = %t", text, got)
		}
	}
}

// The address for log-in is the configured one, or that of the UI.
func TestLoginURL(t *testing.T) {
	for want, c := range map[string]Config{
		"http://127.0.0.1:8321":   {HTTP: "127.0.0.1:8321"},
		"https://sibyl.example/a": {HTTP: "127.0.0.1:8321", OIDC: OIDC{URL: "https://sibyl.example/a/"}},
	} {
		if got := c.LoginURL(); got != want {
			t.Errorf("%+v: got %s, want %s", c, got, want)
		}
	}
	for text, want := range map[string]bool{
		"": true, "https://a.example/b": true, "http://localhost:1": true, "http://[::1]:1/b": true, "http://a": false,
		"http://127.0.0.1.example": false, "ftp://localhost": false, "https://a?b": false,
	} {
		if got := isSafeURL(text); got != want {
			t.Errorf("isSafeURL(%q) = %t", text, got)
		}
	}
}
