package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/durable"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
)

// Tenant describes a tenant other than the default one, which has no name.
type Tenant struct {
	Name    string    `json:"-"` // of its directory
	Created time.Time `json:"created"`
	Quota
}

// Quota limits a tenant.
type Quota struct {
	Memory float64 `json:"memory_percent,omitempty"`   // of the memory and the disk; 0: an equal share of the rest
	Spans  int     `json:"spans_per_second,omitempty"` // 0: unlimited
}

// tenantFile is the name of the file in a tenant's directory that describes the tenant. A directory without it is left
// over from a tenant that was being deleted.
const tenantFile = "tenant.json"

const (
	mostTenants = 32
	// mostShared is the largest part of the memory in percent that tenants can have for themselves. The other tenants
	// divide the rest.
	mostShared = 95
)

var tenantName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// Errors about tenants. They can be shown to people.
var (
	ErrTenantName  = errors.New("the name of a tenant has at most 40 characters of a-z, 0-9 and -, and is not default")
	ErrNoTenant    = errors.New("there is no such tenant")
	ErrTenantThere = errors.New("there is such a tenant")
	errTenants     = fmt.Errorf("a service has at most %d tenants", mostTenants)
	errShares      = fmt.Errorf("the shares of tenants add up to more than %d %% of the memory", mostShared)
	errSpans       = errors.New("a quota of spans is at least 0")
	errTenantInUse = errors.New("a running service uses it: stop the service first")
)

// Tenants returns the tenants in the data directory dataDir, sorted by name, without the default one.
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

// CreateTenant creates a tenant in the data directory dataDir. A service opens it when it starts.
func CreateTenant(dataDir string, t Tenant) error {
	if !tenantName.MatchString(t.Name) || t.Name == access.DefaultTenant {
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
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Join(dataDir, config.TenantsDir, t.Name)
	if err := errors.Join(os.RemoveAll(dir), durable.MkdirAll(dir)); err != nil {
		return fmt.Errorf("create the directory of the tenant: %w", err)
	}
	return durable.Replace(filepath.Join(dir, tenantFile), append(text, '\n'))
}

// TenantDir returns the directory of a tenant, unless the tenant doesn't exist or a service uses it.
func TenantDir(dataDir, name string) (string, error) {
	dir := filepath.Join(dataDir, config.TenantsDir, name)
	if !tenantName.MatchString(name) {
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

// DeleteTenant deletes a tenant with all its data. If it is interrupted, the tenant is gone and can be created again.
func DeleteTenant(dataDir, name string) error {
	dir, err := TenantDir(dataDir, name)
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, tenantFile)); err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(dir), os.RemoveAll(dir))
}

// shares returns the shares of the memory of the default tenant and of all others, between 0 and 1.
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

// configs returns the configurations of the default tenant and of all others. Without others, the default tenant has
// c. It returns an error if a tenant has too little memory.
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
			return nil, fmt.Errorf("the tenant %s would have %d MiB of memory, but each needs %d: raise memory to "+
				"at least %d MiB, or give the others less", name, t.Memory>>20, config.MinMemory>>20,
				c.Memory/max(t.Memory, 1)*config.MinMemory>>20+1)
		}
	}
	return of, nil
}
