package config

import (
	"path/filepath"
	"regexp"
)

// TenantsDir is the subdirectory of the data directory that contains a directory for each tenant except the default
// one.
const TenantsDir = "tenants"

var tenantName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// IsTenantName reports whether a tenant other than the default one can have this name.
func IsTenantName(name string) bool { return tenantName.MatchString(name) && name != "default" }

// TenantOutputs holds the connections of a tenant to other systems. The fields have the same meaning as the fields with
// the same names in [Config], which are for the default tenant.
type TenantOutputs struct {
	Name     string
	Webhooks []Webhook
	Email    []Email
	Export   Endpoint
}

// MinMemory is the minimum memory of a service or a tenant.
const MinMemory = 64 * mib

// Part returns a copy of c with the given share, between 0 and 1, of the memory and the disk space in c.
func (c *Config) Part(share float64) *Config {
	part := *c
	part.Memory, part.ProcessMemory = int64(share*float64(c.Memory)), c.Memory
	part.OTLP.MaxRequest = min(c.OTLP.MaxRequest, part.Memory/requestShare)
	part.Journal.MaxBytes = int64(share * float64(c.Journal.MaxBytes))
	part.Retention.Bytes = int64(share * float64(c.Retention.Bytes))
	return &part
}

// TenantPath returns the path of a tenant's API and UI below the path of the default tenant.
func TenantPath(name string) string { return "/t/" + name }

// Tenant returns the configuration of the tenant called name, with the given share of the memory and the disk; see
// [Config.Part]. The tenant has its own directory, paths, webhooks, e-mail destinations and export. Connections to all
// other systems belong to the default tenant only.
func (c *Config) Tenant(name string, share float64) *Config {
	t := c.Part(share)
	t.DataDir = filepath.Join(c.DataDir, TenantsDir, name)
	t.API.BasePath += TenantPath(name)
	if ui := c.UI(); ui != "" {
		t.API.PublicURL = ui + TenantPath(name)
	}
	t.GitHubSecretFile, t.PagerDutySecretFile, t.SlackSecretFile = "", "", ""
	t.Logs, t.Metrics, t.Kubernetes = Logs{}, Metrics{}, Kubernetes{}
	t.SamplingHTTP, t.SamplingGRPC = "", ""
	t.Jaeger.Query, t.Export, t.Webhooks, t.Email, t.Tenants = nil, Endpoint{}, nil, nil, nil
	for i := range c.Tenants {
		if own := &c.Tenants[i]; own.Name == name {
			t.Export, t.Webhooks, t.Email = own.Export, own.Webhooks, own.Email
		}
	}
	return t
}
