package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/durable"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Tenant describes a tenant. The default tenant has no name.
type Tenant struct {
	Name    string    `json:"-"` // of its directory
	Created time.Time `json:"created"`
	Quota
}

// tenants holds the tenants that a service serves. The value is immutable.
type tenants struct {
	sorted []*tenant // the default tenant, then the others by name
	named  map[string]*tenant
	// several reports whether there are or were tenants other than the default one. Requests for former tenants must
	// not end up in the default one.
	several bool
}

// with returns a copy of x that includes t.
func (x *tenants) with(t *tenant) *tenants {
	y := &tenants{sorted: append(slices.Clone(x.sorted), t), named: maps.Clone(x.named), several: x.several}
	if t.Name == "" {
		_, err := os.Stat(filepath.Join(t.config.DataDir, config.TenantsDir))
		y.named, y.several = make(map[string]*tenant), err == nil
		return y
	}
	y.named[t.Name], y.several = t, true
	sorting.Slice(y.sorted, func(a, b *tenant) int { return strings.Compare(a.Name, b.Name) })
	return y
}

// without returns a copy of x without t.
func (x *tenants) without(t *tenant) *tenants {
	y := &tenants{sorted: slices.Clone(x.sorted), named: maps.Clone(x.named), several: true}
	y.sorted = slices.DeleteFunc(y.sorted, func(other *tenant) bool { return other == t })
	delete(y.named, t.Name)
	return y
}

// quotas returns the descriptions of all tenants except the default one, including their quotas.
func (x *tenants) quotas() (all []Tenant) {
	for _, t := range x.sorted[1:] {
		all = append(all, t.Tenant)
	}
	return all
}

// all returns the default tenant, followed by all others, sorted by name.
func (s *Server) all() []*tenant { return s.open.Load().sorted }

// named reports whether there is a tenant with this name, which is access.DefaultTenant for the default tenant.
func (s *Server) named(name string) bool {
	return name == access.DefaultTenant || s.open.Load().named[name] != nil
}

// Quota limits a tenant.
type Quota struct {
	Memory float64 `json:"memory_percent,omitempty"`   // share of memory and disk; 0: an equal share of the rest
	Spans  int     `json:"spans_per_second,omitempty"` // 0: unlimited
}

// tenantFile is the name of the file in a tenant's directory that describes the tenant. To delete a tenant, the file is
// first renamed to deletedFile, so that the tenant is never opened again.
const (
	tenantFile  = "tenant.json"
	deletedFile = "deleted.json"
)

const (
	mostTenants = 32
	// mostShared is the maximum sum of the memory shares in the quotas of tenants, in percent. Tenants without a share
	// in their quota divide the rest.
	mostShared = 95
)

// Errors about tenants. They can be shown to people.
var (
	ErrTenantName  = errors.New("the name of a tenant has at most 40 characters of a-z, 0-9 and -, and is not default")
	ErrNoTenant    = errors.New("there is no such tenant")
	ErrTenantThere = errors.New("there is such a tenant")
	errTenants     = fmt.Errorf("a service has at most %d tenants", mostTenants)
	errShares      = fmt.Errorf("the shares of tenants add up to more than %d %% of the memory", mostShared)
	errMemory      = errors.New("the memory is too small for so many tenants")
	errSpans       = errors.New("a quota of spans is at least 0")
	errTenantInUse = errors.New("a running service uses it: stop the service first, or name it with --server")
	errLeaving     = errors.New("a tenant of this name is still being deleted: try again in some seconds")
)

// Tenants returns the tenants in the data directory dataDir, except the default one, sorted by name.
func Tenants(dataDir string) ([]Tenant, error) {
	dir := filepath.Join(dataDir, config.TenantsDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	var all []Tenant
	for _, e := range entries {
		file := filepath.Join(dir, e.Name(), tenantFile)
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		t := Tenant{Name: e.Name()}
		if err == nil {
			err = json.Unmarshal(text, &t)
		}
		if err != nil {
			return nil, fmt.Errorf("read the tenant %s: %s: %w", t.Name, file, err)
		}
		all = append(all, t)
	}
	return all, nil
}

// warnOfUnknown logs a warning about each tenant that the configuration names but that doesn't exist. It is no error,
// because the tenant may be created later.
func (s *Server) warnOfUnknown() {
	for i := range s.applied.Tenants {
		if name := s.applied.Tenants[i].Name; !s.named(name) {
			s.log.Warn("the configuration names a tenant that does not exist: create it, or correct the key tenants",
				slog.String("name", name))
		}
	}
}

// CreateTenant creates a tenant in the data directory dataDir. A service opens the tenant when it starts; see
// [Server.CreateTenant] for a running service.
func CreateTenant(dataDir string, t Tenant) error {
	if !config.IsTenantName(t.Name) {
		return ErrTenantName
	}
	if t.Spans < 0 {
		return errSpans
	}
	all, err := Tenants(dataDir)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(x Tenant) bool { return x.Name == t.Name }) {
		return ErrTenantThere
	}
	if _, err := shares(append(all, t)); err != nil {
		return err
	}
	dir := filepath.Join(dataDir, config.TenantsDir, t.Name)
	if pebbledb.InUse(filepath.Join(dir, journalName)) {
		return errLeaving
	}
	if _, err := os.Stat(filepath.Join(dir, deletedFile)); err == nil {
		if err := finishDeletion(dataDir, t.Name); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), durable.MkdirAll(dir)); err != nil {
		return fmt.Errorf("create the directory of the tenant: %w", err)
	}
	return durable.Replace(filepath.Join(dir, tenantFile), append(text, '\n'))
}

// TenantDir returns the directory of a tenant. It returns an error if the tenant doesn't exist, or if a running service
// uses the directory.
func TenantDir(dataDir, name string) (string, error) {
	dir := filepath.Join(dataDir, config.TenantsDir, name)
	if !config.IsTenantName(name) {
		return "", ErrTenantName
	}
	switch _, err := os.Stat(filepath.Join(dir, tenantFile)); {
	case errors.Is(err, fs.ErrNotExist):
		return "", ErrNoTenant
	case err != nil:
		return "", err
	case pebbledb.InUse(filepath.Join(dir, journalName)):
		return "", errTenantInUse
	}
	return dir, nil
}

// DeleteTenant deletes a tenant with all its data and revokes its tokens. If it is interrupted, the tenant either still
// exists unchanged, or is gone and the next start of the service deletes the rest.
func DeleteTenant(dataDir, name string) error {
	dir, err := TenantDir(dataDir, name)
	if err != nil {
		return err
	}
	if err := beginDeletion(dir); err != nil {
		return err
	}
	return finishDeletion(dataDir, name)
}

// beginDeletion marks the directory of a tenant as deleted, so that the tenant is never opened again.
func beginDeletion(dir string) error {
	err := os.Rename(filepath.Join(dir, tenantFile), filepath.Join(dir, deletedFile))
	return errors.Join(err, durable.SyncDir(dir))
}

// finishDeletion revokes the tokens of a tenant, because they would be valid for a later tenant of the same name, and
// removes the tenant's directory. It removes deletedFile last, so that an interrupted deletion can be finished later.
func finishDeletion(dataDir, name string) error {
	if err := revokeTokens(access.Open(dataDir), name); err != nil {
		return err
	}
	all := filepath.Join(dataDir, config.TenantsDir)
	dir := filepath.Join(all, name)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != deletedFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(dir), os.RemoveAll(dir), durable.SyncDir(all))
}

// finishDeletions finishes all interrupted deletions in the data directory dataDir. It also removes directories without
// any data, which interrupted creations and deletions can leave.
func finishDeletions(dataDir string) error {
	files, err := filepath.Glob(filepath.Join(dataDir, config.TenantsDir, "*", deletedFile))
	for _, file := range files {
		err = errors.Join(err, finishDeletion(dataDir, filepath.Base(filepath.Dir(file))))
	}
	all, _ := filepath.Glob(filepath.Join(dataDir, config.TenantsDir, "*"))
	for _, dir := range all {
		unfinished, _ := filepath.Glob(filepath.Join(dir, "."+tenantFile+"*")) // of durable.Replace
		for _, file := range unfinished {
			err = errors.Join(err, os.Remove(file))
		}
		_ = os.Remove(dir) // fails unless it is empty
	}
	return err
}

// revokeTokens revokes all tokens of a tenant.
func revokeTokens(tokens *access.Tokens, tenant string) error {
	all, err := tokens.List()
	for i := range all {
		if all[i].Tenant != tenant {
			continue
		}
		if failed := tokens.Revoke(all[i].ID); !errors.Is(failed, access.ErrUnknown) { // somebody else has revoked it
			err = errors.Join(err, failed)
		}
	}
	return err
}

// shares returns the tenants' shares of the memory, between 0 and 1: first the share of the default tenant, then the
// shares of the tenants in all.
func shares(all []Tenant) ([]float64, error) {
	if len(all) > mostTenants-1 {
		return nil, errTenants
	}
	rest, sharing := 100., 1 // the default tenant shares the rest
	for i := range all {
		switch m := all[i].Memory; {
		case !(m >= 0 && m <= mostShared): // also NaN
			return nil, errShares
		case m == 0:
			sharing++
		default:
			rest -= m
		}
	}
	if rest < 100-mostShared {
		return nil, errShares
	}
	equal := rest / float64(sharing) / 100
	each := []float64{equal}
	for i := range all {
		if m := all[i].Memory; m > 0 {
			each = append(each, m/100)
		} else {
			each = append(each, equal)
		}
	}
	return each, nil
}

// configs returns the configurations of the default tenant and of the tenants in all, in this order. If all is empty,
// the default tenant uses c itself. configs returns an error if a tenant has too little memory.
func configs(c *config.Config, all []Tenant) ([]*config.Config, error) {
	if len(all) == 0 {
		return []*config.Config{c}, nil
	}
	each, err := shares(all)
	if err != nil {
		return nil, err
	}
	of := []*config.Config{c.Part(each[0])}
	for i := range all {
		of = append(of, c.Tenant(all[i].Name, each[i+1]))
	}
	for i, t := range of {
		if t.Memory < config.MinMemory {
			name := access.DefaultTenant
			if i > 0 {
				name = all[i-1].Name
			}
			return nil, fmt.Errorf("%w: the tenant %s would have %d MiB, but each needs %d: raise memory to at least "+
				"%d MiB, or give the others less", errMemory, name, t.Memory>>20, config.MinMemory>>20,
				c.Memory/max(t.Memory, 1)*config.MinMemory>>20+1)
		}
	}
	return of, nil
}
