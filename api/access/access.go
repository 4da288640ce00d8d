// Package access manages tokens with roles. It stores their hashes in a file, and rereads the file when it changes.
//
// A token has 256 random bits, so its SHA-256 needs no salt and no key stretching. Functions that need the time take it
// as an argument.
package access

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/internal/durable"
)

// Role is the role of a caller. It determines the operations that the caller may use.
type Role string

// The roles. An operator has the permissions of a viewer and of an agent. An admin has all permissions. An agent can
// only send traces and fetch plans.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Admin    Role = "admin"
	Agent    Role = "agent"
)

// Roles returns all roles.
func Roles() []Role { return []Role{Viewer, Operator, Admin, Agent} }

// Allows reports whether a token with role r can be used for an operation that requires the role needed.
func (r Role) Allows(needed Role) bool {
	switch r {
	case Admin:
		return true
	case Operator:
		return needed != Admin
	case Viewer, Agent:
		return r == needed
	}
	return false
}

// Principal is the caller of a request.
type Principal struct {
	Name    string
	Role    Role
	Subject string // identifies a person at the identity provider; empty for tokens and local callers
	Issuer  string // the identity provider; empty if Subject is
	Token   string // ID of the token; empty for other callers
	Via     string // how the caller proved its identity: one of the constants below
	Tenants Scope
	// Services lists the services that the token is limited to, separated by ", ". Empty means all services.
	Services string
}

// SpeaksFor reports whether p may report about a service or, if service is empty, about all services.
func (p Principal) SpeaksFor(service string) bool {
	if p.Services == "" {
		return true
	}
	for name := range strings.SplitSeq(p.Services, ", ") {
		if start, any := strings.CutSuffix(name, "*"); name == service || any && strings.HasPrefix(service, start) {
			return true
		}
	}
	return false
}

// Scope lists the tenants that a caller may enter, separated by spaces. If it is empty, the caller may enter the
// default tenant and, as an admin, all tenants.
type Scope string

// Enters reports whether a caller with the role r and the scope s may enter a tenant. The name of the default tenant is
// empty.
func (s Scope) Enters(tenant string, r Role) bool {
	if s == "" {
		return tenant == "" || r == Admin
	}
	return slices.Contains(strings.Fields(string(s)), cmp.Or(tenant, DefaultTenant))
}

// DefaultTenant is the name of the default tenant in a [Scope] and in output for people.
const DefaultTenant = "default"

// Nowhere is the scope of callers who may not enter any tenant. No tenant can have this name.
const Nowhere Scope = "."

// The values of Principal.Via.
const (
	ViaToken = "token" // a token made by sibyl token create
	ViaLocal = "local" // a connection from this machine
	ViaLogin = "login" // the session of a person who logged in
	ViaJWT   = "jwt"   // a token of the identity provider
	// ViaSignature is the signature of a webhook, which proves that the sender knows a shared secret.
	ViaSignature = "signature"
)

type principalKey struct{}

// WithCaller returns a copy of ctx that carries p, the caller of a request.
func WithCaller(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// Caller returns the caller that [WithCaller] put into ctx, or the zero Principal.
func Caller(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}

// Token is the part of a token that is stored.
type Token struct {
	ID      string    `json:"id"` // the first 8 hex digits of the hash
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Hash    string    `json:"sha256,omitempty"` // hash of the secret, in hex
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	// Services lists the services that agents with this token can speak for. A name ending in * stands for all services
	// with that prefix. Empty means all services.
	Services []string `json:"services,omitempty"`
	// Tenant is the only tenant that the token is valid for. If it is empty, the token is valid for the default tenant
	// and, if its role is admin, for the API of all tenants.
	Tenant string `json:"tenant,omitempty"`
	// AnyTenant lets senders name the tenant of their traces in a header.
	AnyTenant bool `json:"any_tenant,omitempty"`
}

// Expired reports whether t has expired by now.
func (t *Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// FileName is the name of the token file in the data directory.
const FileName = "tokens.json"

// Limits on the token file. maxFile is in bytes, maxName in characters, and maxServices is per token.
const (
	maxTokens   = 1000
	maxFile     = 1 << 20
	maxName     = 100
	maxServices = 100
)

// prefix marks secrets, so that scanners can find leaked ones.
const prefix = "sibyl_"

// Errors returned by Validate, Create and Revoke.
var (
	ErrRole     = errors.New("there is no such role")
	ErrName     = fmt.Errorf("a name has at most %d printable characters", maxName)
	ErrServices = fmt.Errorf("only tokens with the role agent can be limited to services: at most %d names of at "+
		"most 255 printable bytes, with * only at the end", maxServices)
	ErrTenant  = errors.New("only tokens with a role that sends traces, and without a tenant, can be for any tenant")
	ErrTooMany = fmt.Errorf("there are %d tokens: revoke some", maxTokens)
	ErrUnknown = errors.New("there is no such token")
)

// Tokens holds the tokens of a data directory. It is safe for concurrent use by several goroutines and processes. A
// lock serialises changes to the file.
type Tokens struct {
	path string
	mu   sync.Mutex  // guards the fields below
	seen fs.FileInfo // info of the file that was read; nil if it doesn't exist
	all  []Token
	bad  error // error from reading that file, or nil

	refused int64     // number of calls to Identify with an invalid secret
	warned  time.Time // time of the last log message about such calls
	log     *slog.Logger
}

// warnInterval is the interval between log messages about refused secrets.
const warnInterval = time.Minute

// Open returns the tokens in the data directory dir. The token file needn't exist.
func Open(dir string) *Tokens { return OpenLogged(dir, slog.New(slog.DiscardHandler)) }

// OpenLogged is like Open, but logs refused secrets, which may be attempts to guess a token.
func OpenLogged(dir string, log *slog.Logger) *Tokens {
	return &Tokens{path: filepath.Join(dir, FileName), log: log}
}

// refresh reads the file if it has changed since it was last read. The caller must hold mu.
func (t *Tokens) refresh() error {
	info, err := os.Stat(t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.seen, t.all, t.bad = nil, nil, nil
		return nil
	case err != nil:
		return fmt.Errorf("tokens: %w", err)
	case t.seen != nil && os.SameFile(info, t.seen) && info.ModTime().Equal(t.seen.ModTime()) &&
		info.Size() == t.seen.Size():
		return t.bad
	}
	t.seen = info
	t.all, t.bad = read(t.path, info.Size())
	return t.bad
}

func read(path string, size int64) ([]Token, error) {
	if size > maxFile {
		return nil, unusable(path, fmt.Errorf("it is larger than %d bytes", maxFile))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	var all []Token
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, unusable(path, err)
	}
	return slices.DeleteFunc(all, func(x Token) bool { return x.Hash == revoked }), nil
}

// unusable returns an error that says that the token file at path is unusable because of err, and how to recover.
func unusable(path string, err error) error {
	return fmt.Errorf("tokens: %s: %w: restore the file from a backup, or move it away (mv %[1]s %[1]s.aside) "+
		"and create new tokens with sibyl token create", path, err)
}

// Find returns the token with the given secret, or nil if there is no such token or it has expired. some reports
// whether a token was ever created, so that revoking the last token doesn't let everybody in. If the file can't be
// read, Find returns an error, and the caller must deny access.
func (t *Tokens) Find(secret string, now time.Time) (found *Token, some bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(); err != nil {
		return nil, true, err
	}
	hash := hashOf(secret)
	for i := range t.all { // don't stop at a match because the time taken must not depend on it
		x := &t.all[i]
		if subtle.ConstantTimeCompare([]byte(hash), []byte(x.Hash)) == 1 && !x.Expired(now) {
			found = new(*x)
		}
	}
	return found, t.seen != nil, nil
}

// Identify is like Find, for the secret in a request from the given address. It counts invalid secrets, and logs at
// most one of them per minute. It doesn't count empty secrets, because programs use them to find out whether they need
// a token, and it counts nothing while no token has been created.
func (t *Tokens) Identify(secret, from string, now time.Time) (found *Token, some bool, err error) {
	found, some, err = t.Find(secret, now)
	if err != nil || found != nil || secret == "" || !some {
		return found, some, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused++
	if now.Sub(t.warned) >= warnInterval {
		t.warned = now
		t.log.Warn("a request with an unknown, revoked or expired token was refused",
			slog.String("from", from), slog.Int64("refused", t.refused))
	}
	return found, some, err
}

// Refused returns the number of invalid secrets passed to Identify.
func (t *Tokens) Refused() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// List returns all tokens in the order of creation.
func (t *Tokens) List() ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.refresh()
	return slices.Clone(t.all), err
}

// validServices reports whether a token with the given role can be limited to services.
func validServices(role Role, services []string) bool {
	const most = 255 // bytes
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	wrong := func(s string) bool {
		return s == "" || len(s) > most || strings.Contains(s[:len(s)-1], "*") || strings.ContainsFunc(s, control)
	}
	return len(services) == 0 || role == Agent && len(services) <= maxServices && !slices.ContainsFunc(services, wrong)
}

// Validate returns ErrRole, ErrName, ErrServices or ErrTenant if no token like t can be created.
func Validate(t Token) error {
	switch {
	case !slices.Contains(Roles(), t.Role):
		return ErrRole
	case len([]rune(t.Name)) > maxName ||
		strings.ContainsFunc(t.Name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return ErrName
	case !validServices(t.Role, t.Services):
		return ErrServices
	case t.AnyTenant && (t.Tenant != "" || !t.Role.Allows(Agent)):
		return ErrTenant
	}
	return nil
}

// Create adds a token with the properties of `like`, and returns it with its secret, which isn't stored. It sets the
// ID, the hash and the time of creation. It returns the error from Validate if the token is invalid, or ErrTooMany if
// there are already maxTokens tokens.
func (t *Tokens) Create(like Token, now time.Time) (secret string, made Token, err error) {
	if err := Validate(like); err != nil {
		return "", Token{}, err
	}
	unlock, err := t.lock()
	if err != nil {
		return "", Token{}, err
	}
	defer unlock()
	if err := t.refresh(); err != nil {
		return "", Token{}, err
	}
	if len(t.all) >= maxTokens {
		return "", Token{}, ErrTooMany
	}
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails
	secret = prefix + base64.RawURLEncoding.EncodeToString(bits[:])
	hash := hashOf(secret)
	made = like
	made.ID, made.Hash, made.Created = hash[:8], hash, now.UTC().Truncate(time.Second)
	return secret, made, t.write(append(slices.Clone(t.all), made))
}

// Revoke removes the token with the given ID, even if the disk is full. The error wraps [ErrUnknown] if there is no
// such token.
func (t *Tokens) Revoke(id string) error {
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := t.refresh(); err != nil {
		return err
	}
	i := slices.IndexFunc(t.all, func(x Token) bool { return x.ID == id })
	if i < 0 {
		return fmt.Errorf("%w: %s", ErrUnknown, id)
	}
	hash := t.all[i].Hash
	err = t.write(slices.Delete(slices.Clone(t.all), i, i+1))
	if durable.Full(err) {
		err = t.overwrite(hash)
	}
	return err
}

// revoked is the hash of tokens that were revoked while the disk was full. No secret has this hash.
var revoked = strings.Repeat("0", 2*sha256.Size)

// overwrite revokes the token with the given hash by overwriting the hash in the file, which needs no space. A crash
// during the write may leave the token valid, but doesn't make the file unreadable. The caller must hold the lock.
func (t *Tokens) overwrite(hash string) (err error) {
	f, err := os.OpenFile(t.path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	at := bytes.Index(text, []byte(`"`+hash+`"`))
	if at < 0 {
		return fmt.Errorf("tokens: %s has changed: try again", t.path)
	}
	if _, err := f.WriteAt([]byte(revoked), int64(at)+1); err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	t.seen = nil
	return t.refresh()
}

// lock locks the file against other goroutines and processes, and returns the function that unlocks it.
func (t *Tokens) lock() (unlock func(), err error) {
	path := filepath.Dir(t.path)
	if err := durable.MkdirAll(path); err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("tokens: lock %s: %w", path, err), dir.Close())
	}
	t.mu.Lock()
	return func() {
		t.mu.Unlock()
		_ = dir.Close() // also unlocks it
	}, nil
}

// write atomically replaces the contents of the file with all. The caller must hold the lock.
func (t *Tokens) write(all []Token) error {
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.Replace(t.path, append(data, '\n')); err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	t.seen = nil
	return t.refresh()
}
