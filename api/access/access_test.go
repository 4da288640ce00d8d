package access

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var now = time.Date(2026, 1, 31, 14, 0, 0, 0, time.UTC)

// Tokens can be created, found and revoked, and they expire. Another process sees every change.
func TestTokens(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	admin, served := Open(dir), Open(dir)
	if x, some, err := served.Find("anything", now); x != nil || some || err != nil {
		t.Fatalf("without a file: %v, %v, %v", x, some, err)
	}
	secret, token, err := admin.Create(Token{Role: Operator, Name: "night shift", Expires: now.Add(time.Hour)}, now)
	if err != nil {
		t.Fatal(err)
	}
	if x, some, err := served.Find(secret, now); err != nil || !some || x == nil || x.Role != Operator ||
		x.Name != "night shift" {
		t.Errorf("found %v, %v, %v", x, some, err)
	}
	if x, some, _ := served.Find(secret, now.Add(time.Hour)); x != nil || !some {
		t.Errorf("found %v after it expired; some: %v", x, some)
	}
	for _, other := range []string{"", secret[:len(secret)-1], strings.ToUpper(secret), token.Hash} {
		if x, _, _ := served.Find(other, now); x != nil {
			t.Errorf("%q found %v", other, x)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil || strings.Contains(string(text), secret) ||
		strings.Contains(string(text), strings.TrimPrefix(secret, prefix)) {
		t.Errorf("the file contains the secret, or: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, FileName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := admin.Revoke("00000000"); !errors.Is(err, ErrUnknown) {
		t.Errorf("revoking an unknown token: %v", err)
	}
	if err := admin.Revoke(token.ID); err != nil {
		t.Fatal(err)
	}
	if x, some, err := served.Find(secret, now); x != nil || !some || err != nil {
		t.Errorf("a revoked token: found %v, %v, %v", x, some, err)
	}
}

// On a full disk, tokens can be revoked, also the last one, but not created. Another process sees that.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	admin, served := Open(dir), Open(dir)
	lost, first, err := admin.Create(Token{Role: Admin, Name: "lost"}, now)
	if err != nil {
		t.Fatal(err)
	}
	kept, second, err := admin.Create(Token{Role: Viewer, Name: "kept"}, now)
	if err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if _, _, err := admin.Create(Token{Role: Viewer}, now); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a token was created on a full disk, or: %v", err)
	}
	if err := admin.Revoke(first.ID); err != nil {
		t.Fatal(err)
	}
	if x, _, err := served.Find(lost, now); x != nil || err != nil {
		t.Errorf("the revoked token: found %v, %v", x, err)
	}
	if x, _, err := served.Find(kept, now); x == nil || err != nil {
		t.Errorf("the other token: found %v, %v", x, err)
	}
	if err := admin.Revoke(second.ID); err != nil {
		t.Fatal(err)
	}
	if all, err := served.List(); len(all) != 0 || err != nil {
		t.Errorf("%v are left, %v", all, err)
	}
	if err := admin.Revoke(first.ID); !errors.Is(err, ErrUnknown) {
		t.Errorf("again: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, _, err := admin.Create(Token{Role: Viewer}, now); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, FileName)); err != nil || strings.Contains(string(text), "lost") {
		t.Errorf("the file still has the revoked tokens, or: %v", err)
	}
}

// A file that is changed in place is read again, even if only its size or its modification time differs.
func TestChangedInPlace(t *testing.T) {
	another := func(text, hash string) string { return strings.ReplaceAll(text, hash, hashOf("another")) }
	for name, c := range map[string]struct {
		revoke func(text, hash string) string
		later  time.Duration
	}{
		"size": {func(string, string) string { return "[]\n" }, 0},
		"time": {another, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, FileName)
			tokens := Open(dir)
			secret, token, err := tokens.Create(Token{Role: Viewer}, now)
			if err != nil {
				t.Fatal(err)
			}
			if x, _, err := tokens.Find(secret, now); x == nil || err != nil {
				t.Fatalf("found %v, %v", x, err)
			}
			before, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(c.revoke(string(text), token.Hash)), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(file, time.Time{}, before.ModTime().Add(c.later)); err != nil {
				t.Fatal(err)
			}
			after, err := os.Stat(file)
			if err != nil || !os.SameFile(before, after) {
				t.Fatalf("the file was replaced, or: %v", err)
			}
			if x, _, err := tokens.Find(secret, now); x != nil || err != nil {
				t.Errorf("a revoked token: found %v, %v", x, err)
			}
		})
	}
}

// A damaged file denies access and doesn't count as a file without tokens.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(`[{"role":`), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens := Open(dir)
	for range 2 { // the second time from the cache
		if x, some, err := tokens.Find("", now); err == nil || x != nil || !some {
			t.Errorf("%v, %v, %v", x, some, err)
		}
	}
	if _, _, err := tokens.Create(Token{Role: Viewer}, now); err == nil {
		t.Error("a damaged file was overwritten")
	}
}

func TestInvalidTokens(t *testing.T) {
	tokens := Open(t.TempDir())
	for _, c := range []struct {
		role Role
		name string
		want error
	}{
		{"root", "", ErrRole},
		{"", "", ErrRole},
		{Viewer, "two\nlines", ErrName},
		{Viewer, strings.Repeat("n", maxName+1), ErrName},
	} {
		if _, _, err := tokens.Create(Token{Role: c.role, Name: c.name}, now); !errors.Is(err, c.want) {
			t.Errorf("%q, %q: %v", c.role, c.name, err)
		}
	}
}

func TestAllows(t *testing.T) {
	allowed := map[Role][]Role{
		Viewer: {Viewer}, Operator: {Viewer, Operator, Agent}, Admin: {Viewer, Operator, Admin, Agent},
		Agent: {Agent}, "": {},
	}
	for role, may := range allowed {
		for _, needed := range Roles() {
			want := false
			for _, x := range may {
				want = want || x == needed
			}
			if role.Allows(needed) != want {
				t.Errorf("%q allows %s: %v", role, needed, !want)
			}
		}
	}
}

// A token file created by root belongs to the owner of the directory, so that a service that isn't root can read it.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change the owner of files")
	}
	const service = 54321
	dir := t.TempDir()
	if err := os.Chown(dir, service, service); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(dir).Create(Token{Role: Viewer}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	var made unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, FileName), &made); err != nil {
		t.Fatal(err)
	}
	if made.Uid != service || made.Gid != service || made.Mode&0o777 != 0o600 {
		t.Errorf("owner %d, group %d, mode %o", made.Uid, made.Gid, made.Mode)
	}
}

// Tokens that several processes create concurrently are all kept.
func TestConcurrentCreate(t *testing.T) {
	dir := t.TempDir()
	var making sync.WaitGroup
	for range 20 {
		making.Go(func() {
			// Each opens its own Tokens, as in another process.
			if _, _, err := Open(dir).Create(Token{Role: Viewer}, now); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
	if all, err := Open(dir).List(); len(all) != 20 || err != nil {
		t.Errorf("%d tokens, %v", len(all), err)
	}
}

// Invalid secrets are counted and logged, once per minute, with the client's address but without the secret.
func TestRefused(t *testing.T) {
	var log strings.Builder
	tokens := OpenLogged(t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
	now := time.Unix(1_800_000_000, 0)
	if _, _, err := tokens.Identify("guess", "192.0.2.7:1", now); err != nil || tokens.Refused() != 0 {
		t.Errorf("without tokens: %v, %d refused", err, tokens.Refused())
	}
	secret, _, err := tokens.Create(Token{Role: Viewer}, now)
	if err != nil {
		t.Fatal(err)
	}
	for i, try := range []string{"", secret, "guess", "guess", "guess"} {
		if _, _, err := tokens.Identify(try, "192.0.2.7:1", now.Add(time.Duration(i)*20*time.Second)); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "from=192.0.2.7:1"); tokens.Refused() != 3 || n != 1 ||
		strings.Contains(log.String(), "guess") {
		t.Errorf("%d refused, want 3; %d log messages, want 1: %s", tokens.Refused(), n, log.String())
	}
}

// A token with role agent can be limited to services with valid names.
func TestServices(t *testing.T) {
	tokens := Open(t.TempDir())
	secret, _, err := tokens.Create(Token{Role: Agent, Services: []string{"shop", "pay-*", "*"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	if x, _, err := tokens.Find(secret, now); err != nil || !slices.Equal(x.Services, []string{"shop", "pay-*", "*"}) {
		t.Errorf("%+v, %v", x, err)
	}
	for _, c := range []struct {
		role     Role
		services []string
	}{
		{Operator, []string{"shop"}},
		{Agent, []string{""}},
		{Agent, []string{"a*b"}},
		{Agent, []string{"a\nb"}},
		{Agent, make([]string, maxServices+1)},
		{Agent, []string{strings.Repeat("a", 256)}},
	} {
		if _, _, err := tokens.Create(Token{Role: c.role, Services: c.services}, now); !errors.Is(err, ErrServices) {
			t.Errorf("%s %q: error %v", c.role, c.services, err)
		}
	}
}
