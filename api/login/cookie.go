package login

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/internal/durable"
)

// KeyFile is the name of the file in the data directory that holds the key for sealing sessions. Removing it ends all
// sessions at the next start. Backups don't contain it.
const KeyFile = "session.key"

const keySize = 32 // bytes, for AES-256

// newSealer returns the cipher for sessions. It creates the key file if it doesn't exist.
func newSealer(dir string) (cipher.AEAD, error) {
	path := filepath.Join(dir, KeyFile)
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, keySize)
		_, _ = rand.Read(key) // never fails
		err = durable.Replace(path, key)
	}
	if err != nil {
		return nil, fmt.Errorf("key of sessions: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("key of sessions: %w", err)
	}
	if info.Mode()&0o007 != 0 { // a cluster may assign files to a group whose only member is the service
		return nil, fmt.Errorf("key of sessions: %s has mode %04o, so others may have read it and can make sessions: "+
			"remove it; people then log in again", path, info.Mode().Perm())
	}
	if len(key) != keySize {
		return nil, fmt.Errorf("key of sessions: %s has %d bytes, want %d: remove it; people then log in again",
			path, len(key), keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// kind is a kind of sealed value, such as a cookie. life is the time that a sealed value is valid.
type kind struct {
	name string
	life time.Duration
}

var (
	attemptCookie = kind{"login", 10 * time.Minute}
	sessionCookie = kind{"session", 8 * time.Hour}
	tokenSession  = kind{"token", sessionCookie.life} // for programs, which send it as a bearer token
)

// attempt is the contents of the cookie that a browser holds while a person logs in at the provider.
type attempt struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"` // PKCE code verifier
	To       string `json:"to"`       // path of the page to return to
}

// session is the contents of the cookie or token of a person who is logged in.
type session struct {
	Subject string `json:"sub"`
	Name    string `json:"name"`
	Value   string `json:"value"` // value of the claim that gives the role

	Tenants access.Scope `json:"tenants,omitempty"`
}

// sealed is the plaintext of a sealed value.
type sealed struct {
	Expires time.Time       `json:"expires"`
	Value   json.RawMessage `json:"value"`
}

// suffixOf returns the suffix of the cookie names of the UI at address. Services on the same host have different
// suffixes, because browsers don't separate cookies by port, and all cookies of this package have the same path.
func suffixOf(address string) string {
	hash := sha256.Sum256([]byte(address))
	return "-" + hex.EncodeToString(hash[:4])
}

// cookie returns a cookie of kind k without a value. Browsers accept the prefix __Host- only for cookies that the host
// itself sets over TLS and for all paths, so no other host can set such a cookie. Without TLS, which the configuration
// permits only on the local machine, Safari doesn't store such cookies even for localhost.
func (s *Service) cookie(k kind) *http.Cookie {
	name, secure := "sibyl-"+k.name+s.suffix, strings.HasPrefix(s.origin, "https:")
	if secure {
		name = "__Host-" + name
	}
	return &http.Cookie{Name: name, Path: "/", Secure: secure, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

// write sets a cookie of kind k that seals value.
func (s *Service) write(w http.ResponseWriter, k kind, value any) error {
	text, err := s.seal(k, value)
	if err != nil {
		return err
	}
	c := s.cookie(k)
	c.MaxAge = int(k.life.Seconds())
	c.Value = text
	http.SetCookie(w, c)
	return nil
}

// seal encodes value as JSON and seals it as kind k. The result expires after k.life.
func (s *Service) seal(k kind, value any) (string, error) {
	inner, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(sealed{s.options.Clock().Add(k.life), inner})
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.sealer.Seal(nil, nil, text, s.bound(k))), nil
}

// read decodes the request's cookie of kind k into value. It reports whether there is such a cookie and open accepts
// it.
func (s *Service) read(r *http.Request, k kind, value any) bool {
	c, err := r.Cookie(s.cookie(k).Name)
	return err == nil && s.open(k, c.Value, value)
}

// open decodes text, a sealed value of kind k, into value. It reports whether this service sealed text as kind k and
// text hasn't expired.
func (s *Service) open(k kind, text string, value any) bool {
	packed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	plain, err := s.sealer.Open(nil, nil, packed, s.bound(k))
	if err != nil {
		return false
	}
	var x sealed
	return json.Unmarshal(plain, &x) == nil && s.options.Clock().Before(x.Expires) &&
		json.Unmarshal(x.Value, value) == nil
}

// remove makes the browser delete its cookie of kind k.
func (s *Service) remove(w http.ResponseWriter, k kind) {
	c := s.cookie(k)
	c.MaxAge = -1
	http.SetCookie(w, c)
}

// bound returns the additional data that authenticates sealed values of kind k: they are valid only as the same kind,
// and for the same client of the same provider.
func (s *Service) bound(k kind) []byte {
	return []byte(strings.Join([]string{k.name, s.options.Issuer, s.options.ClientID}, "\x00"))
}
